// Dispatch: chooses the GEMM kernel family of a job.
#include <string>

#include "octavo/backend/cuda/gemm/gemm_cublaslt.h"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/base/error.h"
#include "octavo/base/log.h"
#include "octavo/format/parse_format.h"
#include "octavo/tensor/dtype.h"

namespace octavo::cuda {
namespace {

// Maps f16 accumulators to what runs. f16 sums are requested for speed, and no kernel here is
// faster with them: sums of the FP8 tensor cores and f32 sums are closer to the exact product and
// cannot overflow. docs/numerics/gemm.md has the bounds.
GemmJob as_done(GemmJob job) {
  if (job.accumulator != Accumulator::f16) return job;
  job.accumulator = Accumulator::native;
  if (!fits_fp8(job)) job.accumulator = Accumulator::f32;
  return job;
}

std::string words_for(const GemmOperand& operand) {
  if (!operand.is_quantized()) return std::string(dtype_name(operand.values.dtype));
  const auto side = [](std::int64_t size) { return size > 0 ? text(size) : "all"; };
  const Tile& tile = operand.quantized.tile;
  return text(format_name(operand.quantized.codes.format), " with scales for ", side(tile.rows),
              " x ", side(tile.cols));
}

// Logs that a product takes the general kernel, so that its low speed is explained.
void tell_general(const Exec& exec, const GemmJob& job) {
  if (exec.log == nullptr || job.a.cols() == 0) return;
  exec.log->once(text("[gemm] ", words_for(job.a), " by ", words_for(job.b),
                      " has no tensor-core kernel and takes the general kernel, which is far "
                      "slower; use bfloat16 values, by each other or by codes"));
}

}  // namespace

bool gemm_offered(const GemmJob& asked) {
  const GemmJob job = as_done(asked);
  if (job.group_count > 0) {
    // FP4 weights stay in four bits in a separate product per group. A grouped GEMM would decode
    // all of them to bf16 in every call, including those of groups without rows.
    const bool as_bf16 = fits_bf16(job) && !fits_small_m_fp4_weights(job.b);
    return groups_fit(job) && (fits_fp8(job) || fits_mx(job) || fits_recoded(job) || as_bf16);
  }
  return fits_fp8(job) || fits_mx(job) || fits_recoded(job) || fits_fp4(job) || fits_bf16(job) ||
         fits_general(job);
}

void gemm_matrix(const Exec& exec, const GemmJob& asked) {
  const Scope scope(exec);
  const GemmJob job = as_done(asked);
  if (fits_fp8(job)) {
    // A caller that asks for f16 sums gets everything that is promised for them, bits included.
    const bool any_order = asked.accumulator == Accumulator::native;
    if (any_order && gemm_cublaslt_if_chosen(exec, job)) return;
    return gemm_fp8(exec, job);
  }
  if (fits_mx(job)) return gemm_mx(exec, job);
  if (fits_small_m_by_fp4(job)) return gemm_fp4(exec, job);
  if (fits_recoded(job)) return gemm_recoded(exec, job);
  if (fits_fp4(job)) return gemm_fp4(exec, job);
  if (fits_small_m_by_fp8(job)) return gemm_small_m_by_fp8(exec, job);
  if (fits_bf16(job)) return gemm_bf16(exec, job);
  tell_general(exec, job);
  gemm_general(exec, job);
}

}  // namespace octavo::cuda
