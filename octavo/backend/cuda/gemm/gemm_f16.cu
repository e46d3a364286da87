// Instantiates the GEMM kernels for f16 by f16.
#include "octavo/backend/cuda/gemm/gemm_launch.cuh"

namespace octavo::cuda {

void launch_f16(const Exec& exec, const GemmPlan& plan, const GemmShape& shape, ScaleKind scales) {
  if (shape == kSquare)
    return launch_gemm<GemmKernel<Mma::f16, kSquare, ScaleKind::at_end>>(exec, plan);
  launch_mma<Mma::f16>(exec, plan, shape, scales);
}

}  // namespace octavo::cuda
