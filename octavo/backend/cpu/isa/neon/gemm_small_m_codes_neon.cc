// GEMV and small M by 8-bit codes that are decoded in registers: every row of B is read once, and
// only sums are written. Sixteen codes are 11 operations to byte planes and 6 to f32, then 4
// multiply-adds for each row of A.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/decode_planes.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"

namespace octavo::cpu {
namespace {

constexpr int kQuads = 4;  // vectors of f32 in sixteen codes

struct Sixteen {
  float32x4_t quad[kQuads];

  [[gnu::always_inline]] explicit Sixteen(const Planes& planes) {
    const uint16x8_t low = vreinterpretq_u16_u8(vzip1q_u8(planes.low, planes.high)),
                     high = vreinterpretq_u16_u8(vzip2q_u8(planes.low, planes.high)),
                     zero = vdupq_n_u16(0);
    quad[0] = vreinterpretq_f32_u16(vzip1q_u16(zero, low));
    quad[1] = vreinterpretq_f32_u16(vzip2q_u16(zero, low));
    quad[2] = vreinterpretq_f32_u16(vzip1q_u16(zero, high));
    quad[3] = vreinterpretq_f32_u16(vzip2q_u16(zero, high));
  }
};

// One run of codes: the four quads of every sixteen have separate accumulators.
template <typename PlanesOf>
[[gnu::always_inline]] inline float32x4_t run_of(const float* a, const std::uint8_t* codes,
                                                 std::int64_t n, const PlanesOf& planes_of) {
  // Loading codes is slower than multiplying them: they are prefetched.
  constexpr std::int64_t kAhead = 1024;
  float32x4_t sum[kQuads] = {};
#pragma GCC unroll 2
  for (std::int64_t k = 0; k < n; k += 16) {
    __builtin_prefetch(codes + k + kAhead);
    const Sixteen right(planes_of(vld1q_u8(codes + k)));
#pragma GCC unroll 4
    for (int q = 0; q < kQuads; ++q)
      sum[q] = vfmaq_f32(sum[q], vld1q_f32(a + k + 4 * q), right.quad[q]);
  }
  return vaddq_f32(vaddq_f32(sum[0], sum[1]), vaddq_f32(sum[2], sum[3]));
}

template <typename PlanesOf>
[[gnu::always_inline]] inline float dot_codes(const DotJob& job, int col,
                                              const PlanesOf& planes_of) {
  const auto* a = reinterpret_cast<const float*>(job.a[0]);
  const auto* codes = reinterpret_cast<const std::uint8_t*>(job.b[col]);
  const float *a_scale = job.a_scale[0], *b_scale = job.b_scale + col;
  float32x4_t total = vdupq_n_f32(0.0F);
  for (std::int64_t r = 0; r < job.runs; ++r) {
    const std::int64_t at = r * job.run;
    const float32x4_t run = job.run == kMxBlock ? run_of(a + at, codes + at, kMxBlock,
                                                         planes_of)  // not a loop: it is short
                                                : run_of(a + at, codes + at, job.run, planes_of);
    total = vfmaq_n_f32(total, vmulq_n_f32(run, b_scale[r * kDotCols]), a_scale[r]);
  }
  return vaddvq_f32(total);
}

template <const Format& kFormat, int kMantissa>
void dot(const DotJob& job) {
  const ShiftedPlanes<BfloatTarget, kMantissa> planes_of(kFormat);
  for (int col = 0; col < kDotCols; ++col) job.sums[col] += dot_codes(job, col, planes_of);
}

}  // namespace

DotKernel neon_dot_codes(const Format& format) {
  if (format == e4m3fn) return dot<e4m3fn, 3>;
  return format == e5m2 ? dot<e5m2, 2> : nullptr;
}

}  // namespace octavo::cpu
