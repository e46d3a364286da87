// Instantiates the GEMM kernels for NVFP4 weights.
#include "octavo/backend/cuda/gemm/fp4/gemm_fp4_launch.cuh"

namespace octavo::cuda {

void launch_nvfp4(const Exec& exec, const Fp4Plan& plan, int cols) {
  launch_fp4<true>(exec, plan, cols);
}

}  // namespace octavo::cuda
