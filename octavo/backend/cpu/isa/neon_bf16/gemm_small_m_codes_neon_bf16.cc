// GEMV by codes that are decoded in registers, multiplied by BFDOT: every row of B is read once,
// and only sums are written. Sixteen codes of e4m3fn or e5m2 are 13 operations to bf16, sixteen of
// e2m1fn 4, and then 2 products.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/decode_planes.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_lanes.h"
#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16_internal.h"
#include "octavo/backend/cpu/isa/neon_bf16/nibble_planes.h"

namespace octavo::cpu {
namespace {

template <typename PlanesOf>
[[gnu::always_inline]] inline void add_sixteen(float32x4_t (&sum)[2], const std::byte* a,
                                               uint8x16_t code, const PlanesOf& planes_of) {
  const Planes planes = planes_of(code);
  const auto low = vreinterpretq_bf16_u8(vzip1q_u8(planes.low, planes.high)),
             high = vreinterpretq_bf16_u8(vzip2q_u8(planes.low, planes.high));
  sum[0] = vbfdotq_f32(sum[0], load_bf16(a), low);
  sum[1] = vbfdotq_f32(sum[1], load_bf16(a + 16), high);
}

template <typename PlanesOf>
[[gnu::always_inline]] inline float32x4_t run_of(const std::byte* a, const std::uint8_t* codes,
                                                 std::int64_t n, const PlanesOf& planes_of) {
  // Loading codes is slower than multiplying them: they are prefetched.
  constexpr std::int64_t kAhead = 1024;
  float32x4_t sum[2] = {};
#pragma GCC unroll 2
  for (std::int64_t k = 0; k < n; k += 16) {
    __builtin_prefetch(codes + k + kAhead);
    add_sixteen(sum, a + 2 * k, vld1q_u8(codes + k), planes_of);
  }
  return vaddq_f32(sum[0], sum[1]);
}

template <typename PlanesOf>
[[gnu::always_inline]] inline float dot_codes(const DotJob& job, int col,
                                              const PlanesOf& planes_of) {
  const std::byte* a = job.a[0];
  const auto* codes = reinterpret_cast<const std::uint8_t*>(job.b[col]);
  const float *a_scale = job.a_scale[0], *b_scale = job.b_scale + col;
  const std::int64_t length = job.run;
  float32x4_t total = vdupq_n_f32(0.0F);
  for (std::int64_t r = 0; r < job.runs; ++r, a += 2 * length, codes += length) {
    // The length of a block is written out: a loop would be longer than its body.
    const float32x4_t run = length == 16         ? run_of(a, codes, 16, planes_of)
                            : length == kMxBlock ? run_of(a, codes, kMxBlock, planes_of)
                                                 : run_of(a, codes, length, planes_of);
    total = vfmaq_n_f32(total, vmulq_n_f32(run, b_scale[r * kDotCols]), a_scale[r]);
  }
  return vaddvq_f32(total);
}

template <const Format& kFormat, typename PlanesOf>
void dot(const DotJob& job) {
  const auto planes_of = PlanesOf::template of<kFormat>();
  for (int col = 0; col < kDotCols; ++col) job.sums[col] += dot_codes(job, col, planes_of);
}

}  // namespace

DotKernel neon_bf16_dot_codes(const Format& format) {
  if (format == e4m3fn) return dot<e4m3fn, ShiftedPlanes<BfloatTarget, 3>>;
  if (format == e5m2) return dot<e5m2, ShiftedPlanes<BfloatTarget, 2>>;
  return format == e2m1fn ? dot<e2m1fn, NibblePlanes> : nullptr;
}

}  // namespace octavo::cpu
