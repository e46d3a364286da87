// Launches a kernel in thread block clusters, as a PDL launch, with dynamic shared memory above 48
// KB.
#pragma once

#include <atomic>
#include <cstdint>

#include "octavo/backend/cuda/hopper/pdl_launch.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {

template <typename Kernel, auto kFunction, typename Plan>
void launch_clusters(const Exec& exec, int clusters, const Plan& plan) {
  // Dynamic shared memory above 48 KB must be enabled once per device.
  static std::atomic<std::uint64_t> allowed{0};
  const std::uint64_t bit = 1ull << (exec.device.index % 64);
  if ((allowed.load(std::memory_order_relaxed) & bit) == 0) {
    OCTAVO_CUDA_CHECK(cudaFuncSetAttribute(kFunction, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           Kernel::kSharedBytes));
    allowed.fetch_or(bit, std::memory_order_relaxed);
  }
  cudaLaunchConfig_t config{};
  config.gridDim = static_cast<unsigned>(clusters * Kernel::kClusterSize);
  config.blockDim = Kernel::kThreads;
  config.dynamicSmemBytes = Kernel::kSharedBytes;
  config.stream = stream_of(exec);
  cudaLaunchAttribute attributes[2] = {pdl_attribute(), {}};
  cudaLaunchAttribute& cluster = attributes[1];
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = Kernel::kClusterSize;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  OCTAVO_CUDA_CHECK(cudaLaunchKernelEx(&config, kFunction, plan));
}

}  // namespace octavo::cuda
