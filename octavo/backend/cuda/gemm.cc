// Which kernel does a product.
#include "octavo/backend/cuda/gemm_plan.h"
#include "octavo/backend/cuda/kernels_internal.h"
#include "octavo/backend/cuda/runtime.h"

namespace octavo::cuda {

bool gemm_offered(const GemmJob& job) { return fits_fp8(job) || fits_mx(job) || fits_general(job); }

void gemm_matrix(const Exec& exec, const GemmJob& job) {
  const Scope scope(exec);
  if (fits_fp8(job)) return gemm_fp8(exec, job);
  if (fits_mx(job)) return gemm_mx(exec, job);
  gemm_general(exec, job);
}

}  // namespace octavo::cuda
