// Instantiates the GEMM kernels for e4m3 rows by e4m3 columns.
#include "octavo/backend/cuda/gemm/gemm_launch.cuh"

namespace octavo::cuda {

void launch_e4m3_e4m3(const Exec& exec, const GemmPlan& plan, const GemmShape& shape,
                      ScaleKind scales) {
  launch_mma<Mma::e4m3_e4m3>(exec, plan, shape, scales);
}

}  // namespace octavo::cuda
