// Small M GEMM (GEMV, skinny GEMM) of bf16 by FP8 weights, which stay in eight bits until they are
// in registers: MX, or with f32 scales for all of K or for 128 of it. Neighbours in memory are
// paired, which is how the hardware converts them.
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/gemm/small_m/fp8_decode.cuh"
#include "octavo/backend/cuda/gemm/small_m/small_m.cuh"
#include "octavo/backend/cuda/gemm/small_m/small_m_plan.h"
#include "octavo/backend/cuda/gemm/small_m/small_m_scales.cuh"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

template <bool kE5m2>
struct Fp8Codes {
  using Sixteen = uint4;
  static constexpr bool kTwice = false;

  // Half of the sixteen is two words, and a word has two pairs.
  static __device__ __forceinline__ unsigned pair(const uint4& sixteen, int half, int i) {
    const unsigned word =
        half == 0 ? (i < 2 ? sixteen.x : sixteen.y) : (i < 2 ? sixteen.z : sixteen.w);
    return decoded_fp8<kE5m2>(i % 2 == 0 ? word & 0xFFFFu : word >> 16);
  }

  static __device__ __forceinline__ unsigned value_pair(const uint4& eight, int i) {
    return i < 2 ? (i == 0 ? eight.x : eight.y) : (i == 2 ? eight.z : eight.w);
  }
};

bool has_block_scales(const QuantizedMatrix& weights) {
  return weights.scales.dtype == DType::code;
}

bool lasts_for_all(const QuantizedMatrix& weights) {
  return tile_extent(weights.tile.cols, weights.codes.cols) >= weights.codes.cols;
}

bool scales_fit(const QuantizedMatrix& weights) {
  const Matrix& scales = weights.scales;
  if (weights.tensor_scale != nullptr) return false;
  if (has_block_scales(weights))
    return scales.format == e8m0fnu && scales.col_stride == 1 && weights.tile.rows == 1 &&
           weights.tile.cols == 32;
  return scales.dtype == DType::f32 &&
         (lasts_for_all(weights) || weights.tile.cols == RunScales::kRun);
}

template <bool kE5m2>
void launch(const Exec& exec, const SmallMPlan& plan, const QuantizedMatrix& weights) {
  using Codes = Fp8Codes<kE5m2>;
  if (has_block_scales(weights))
    return launch_small_m<Codes, BlockScales<false>, kMaxSmallMFp8>(exec, plan);
  if (lasts_for_all(weights)) return launch_small_m<Codes, RowScales, kMaxSmallMFp8>(exec, plan);
  launch_small_m<Codes, RunScales, kMaxSmallMFp8>(exec, plan);
}

}  // namespace

bool fits_small_m_fp8_weights(const GemmOperand& weights) {
  const QuantizedMatrix& q = weights.quantized;
  const Matrix& codes = q.codes;
  constexpr std::int64_t kMax = std::int64_t{1} << 30, kLane = 16;  // codes per lane
  return weights.is_quantized() && is_fp8_format(codes.format) && scales_fit(q) && codes.cols > 0 &&
         codes.cols % kLane == 0 && codes.col_stride == 1 && has_aligned_rows(codes, kLane) &&
         codes.rows < kMax && codes.cols < kMax;
}

void gemm_small_m_fp8(const Exec& exec, const Matrix& x, const float* x_scale, const GemmJob& job) {
  const QuantizedMatrix& q = job.b.quantized;
  SmallMPlan plan = small_m_plan_of(x, x_scale, job);
  plan.whole = plan.whole && (!has_block_scales(q) || has_aligned_rows(q.scales, 8));
  q.codes.format == e5m2 ? launch<true>(exec, plan, q) : launch<false>(exec, plan, q);
}

}  // namespace octavo::cuda
