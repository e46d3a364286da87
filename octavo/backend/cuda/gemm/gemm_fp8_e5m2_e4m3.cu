// Instantiates the GEMM kernels for e5m2 rows by e4m3 columns.
#include "octavo/backend/cuda/gemm/gemm_launch.cuh"

namespace octavo::cuda {

void launch_e5m2_e4m3(const Exec& exec, const GemmPlan& plan, const GemmShape& shape,
                      ScaleKind scales) {
  launch_mma<Mma::e5m2_e4m3>(exec, plan, shape, scales);
}

}  // namespace octavo::cuda
