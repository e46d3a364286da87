// Small M GEMM (GEMV, skinny GEMM) of bf16 by FP4 weights, MX or NVFP4, which stay in four bits
// until they are in registers. Nibbles are paired as they lie in a word, i with i + 4.
#include <cuda_bf16.h>

#include "octavo/backend/cuda/gemm/fp4_decode.cuh"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/gemm/small_m/small_m.cuh"
#include "octavo/backend/cuda/gemm/small_m/small_m_plan.h"
#include "octavo/backend/cuda/gemm/small_m/small_m_scales.cuh"
#include "octavo/backend/cuda/runtime/alignment.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/format/named_formats.h"

namespace octavo::cuda {
namespace {

struct Fp4Codes {
  using Sixteen = uint2;
  static constexpr bool kTwice = true;

  // Nibbles i and i + 4 of a word.
  static __device__ __forceinline__ unsigned pair(const uint2& sixteen, int half, int i) {
    const unsigned at_start = (half == 0 ? sixteen.x : sixteen.y) >> (4 * i);
    const __nv_bfloat162 decoded =
        decoded_e2m1((at_start & 0x00070007u) << 6 | (at_start & 0x00080008u) << 12);
    return *reinterpret_cast<const unsigned*>(&decoded);
  }

  // Values i and i + 4 of eight.
  static __device__ __forceinline__ unsigned value_pair(const uint4& eight, int i) {
    const unsigned low = i < 2 ? eight.x : eight.y, high = i < 2 ? eight.z : eight.w;
    return __byte_perm(low, high, i % 2 == 0 ? 0x5410 : 0x7632);
  }
};

}  // namespace

bool is_nvfp4(const QuantizedMatrix& weights) { return weights.scales.format == e4m3fn; }

bool fits_small_m_fp4_weights(const GemmOperand& weights) {
  const QuantizedMatrix& q = weights.quantized;
  const bool scales_fit =
      q.scales.dtype == DType::code && q.scales.col_stride == 1 && q.tile.rows == 1 &&
      ((q.scales.format == e4m3fn && q.tile.cols == 16) ||
       (q.scales.format == e8m0fnu && q.tile.cols == 32 && q.tensor_scale == nullptr));
  constexpr std::int64_t kMax = std::int64_t{1} << 30;
  return weights.is_quantized() && scales_fit && q.codes.format == e2m1fn && q.codes.packed &&
         has_aligned_rows(q.codes, 8) && q.codes.cols > 0 && q.codes.cols % q.tile.cols == 0 &&
         q.codes.rows < kMax && q.codes.cols < kMax;
}

void gemm_small_m_fp4(const Exec& exec, const Matrix& x, const float* x_scale, const GemmJob& job) {
  const QuantizedMatrix& q = job.b.quantized;
  SmallMPlan plan = small_m_plan_of(x, x_scale, job);
  plan.whole = plan.whole && has_aligned_rows(q.scales, 8);
  is_nvfp4(q) ? launch_small_m<Fp4Codes, BlockScales<true>, kMaxSmallMFp4>(exec, plan)
              : launch_small_m<Fp4Codes, BlockScales<false>, kMaxSmallMFp4>(exec, plan);
}

}  // namespace octavo::cuda
