// Instantiates the GEMM kernels for e5m2 rows by e5m2 columns.
#include "octavo/backend/cuda/gemm/gemm_launch.cuh"

namespace octavo::cuda {

void launch_e5m2_e5m2(const Exec& exec, const GemmPlan& plan, const GemmShape& shape,
                      ScaleKind scales) {
  launch_mma<Mma::e5m2_e5m2>(exec, plan, shape, scales);
}

}  // namespace octavo::cuda
