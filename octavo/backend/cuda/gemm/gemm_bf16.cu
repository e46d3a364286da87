// Instantiates the GEMM kernels for bf16 by bf16.
#include "octavo/backend/cuda/gemm/gemm_launch.cuh"

namespace octavo::cuda {

void launch_bf16(const Exec& exec, const GemmPlan& plan, const GemmShape& shape, ScaleKind scales) {
  if (shape == kSquare)
    return launch_gemm<GemmKernel<Mma::bf16, kSquare, ScaleKind::at_end>>(exec, plan);
  launch_mma<Mma::bf16>(exec, plan, shape, scales);
}

}  // namespace octavo::cuda
