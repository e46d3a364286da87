// Kernels that are made ready while the one before them in the stream ends: between two of them
// microseconds pass otherwise. Only for kernels that call wait_for_kernels_before() (hopper.cuh).
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {

[[nodiscard]] inline cudaLaunchAttribute overlaps() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

template <typename... Parameters, typename... Arguments>
void launch_overlapped(const Exec& exec, dim3 grid, int threads, void (*kernel)(Parameters...),
                       Arguments&&... arguments) {
  cudaLaunchAttribute attribute = overlaps();
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = static_cast<unsigned>(threads);
  config.stream = stream_of(exec);
  config.attrs = &attribute;
  config.numAttrs = 1;
  OCTAVO_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace octavo::cuda
