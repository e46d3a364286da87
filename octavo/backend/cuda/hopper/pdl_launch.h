// Programmatic dependent launch (PDL), host side: the launch of a kernel overlaps the end of the
// kernel before it in the stream, which otherwise costs microseconds. Only for kernels that call
// pdl_wait() (pdl.cuh).
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {

[[nodiscard]] inline cudaLaunchAttribute pdl_attribute() {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  return attribute;
}

template <typename... Parameters, typename... Arguments>
void launch_pdl(const Exec& exec, dim3 grid, int threads, void (*kernel)(Parameters...),
                Arguments&&... arguments) {
  cudaLaunchAttribute attribute = pdl_attribute();
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = static_cast<unsigned>(threads);
  config.stream = stream_of(exec);
  config.attrs = &attribute;
  config.numAttrs = 1;
  OCTAVO_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace octavo::cuda
