// Launches the FP4 GEMM kernel of one kind of block scales, by tile width.
#pragma once

#include <iterator>

#include "octavo/backend/cuda/gemm/fp4/gemm_fp4_kernel.cuh"
#include "octavo/backend/cuda/hopper/cluster_launch.cuh"

namespace octavo::cuda {

#ifdef OCTAVO_CUDA_ONE_CONFIG
inline constexpr int kFp4FirstBuilt = static_cast<int>(std::size(kFp4Cols)) - 1;
#else
inline constexpr int kFp4FirstBuilt = 0;
#endif

template <bool kNvfp4, int kIndex = kFp4FirstBuilt>
void launch_fp4(const Exec& exec, const Fp4Plan& plan, int cols) {
  if constexpr (kIndex < static_cast<int>(std::size(kFp4Cols))) {
    using Kernel = Fp4Kernel<kNvfp4, kFp4Cols[kIndex]>;
    if (cols == Kernel::kCols)
      return launch_clusters<Kernel, gemm_fp4_kernel<Kernel>>(exec, plan.gemm.schedule.clusters,
                                                              plan);
    launch_fp4<kNvfp4, kIndex + 1>(exec, plan, cols);
  }
}

}  // namespace octavo::cuda
