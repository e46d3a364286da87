// Instantiates the GEMM kernels for MXFP4 weights.
#include "octavo/backend/cuda/gemm/fp4/gemm_fp4_launch.cuh"

namespace octavo::cuda {

void launch_mxfp4(const Exec& exec, const Fp4Plan& plan, int cols) {
  launch_fp4<false>(exec, plan, cols);
}

}  // namespace octavo::cuda
