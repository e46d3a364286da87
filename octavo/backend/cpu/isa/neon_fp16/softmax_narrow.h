// The online softmax of a query block of 24 columns whose scores are f16 (narrow_scores), in units
// of 16 (attention.h): eight lanes to an operation, 12 operations for each vector, one more for
// squares.
//
// As in softmax_f16.h weights have a factor in common, and 2^f is (f + a) (f^2 + b f + c). With f
// in units of 16 that is 2^-12 of what it was, so that powers of two up to 2^15, all that an
// exponent field says, may follow: a score is rounded to its integer n by adding a number whose
// last bit is worth 1, the sum's low bits are then the field of 2^n, and field 0 is the number 0.
// Coefficients are the f16 numbers next to softmax_f16.h's for which the largest error of all f is
// the least, found by exhaustive search: 1.1e-3, 3.8e-4 root mean square, where the rounding of a
// result to f16 alone is 4.9e-4 and 2.8e-4. Weights 2^-29.5 below the largest are 0.
#pragma once

#include <arm_neon.h>

#include "octavo/backend/cpu/isa/neon/softmax_top_neon.h"
#include "octavo/backend/cpu/isa/neon_fp16/half_squares.h"

namespace octavo::cpu {
namespace {

constexpr int kNarrowEights = kHalfCols / 8, kNarrowTogether = 2;  // keys
constexpr int kNarrowChains = kNarrowTogether * kNarrowEights;
constexpr float kTopField = 30.0F;  // of a score that is the column's origin

// Two keys interleaved: a single dependency chain stalls the core.
[[gnu::always_inline]] inline void narrow_exp2(const float16_t* score,
                                               const float16x8_t (&least)[kNarrowEights],
                                               const float16x8_t (&rounder)[kNarrowEights],
                                               float16x8_t (&p)[kNarrowChains]) {
  const float16x8_t a = vdupq_n_f16(static_cast<float16_t>(0x1.2ap-3F)),
                    b = vdupq_n_f16(static_cast<float16_t>(0x1.05cp-3F)),
                    c = vdupq_n_f16(static_cast<float16_t>(0x1.f08p-6F));
  float16x8_t f[kNarrowChains], shifted[kNarrowChains];
  const auto each = [](auto&& one) {
#pragma GCC unroll 6
    for (int i = 0; i < kNarrowChains; ++i) one(i, i % kNarrowEights);
  };
  each([&](int i, int e) { f[i] = vmaxq_f16(vld1q_f16(score + 8 * i), least[e]); });
  each([&](int i, int e) { shifted[i] = vaddq_f16(f[i], rounder[e]); });
  each([&](int i, int e) { f[i] = vsubq_f16(f[i], vsubq_f16(shifted[i], rounder[e])); });
  each([&](int i, int) { p[i] = vfmaq_f16(c, vaddq_f16(f[i], b), f[i]); });
  each([&](int i, int) { p[i] = vmulq_f16(p[i], vaddq_f16(f[i], a)); });
  each([&](int i, int) {
    const uint16x8_t field = vshlq_n_u16(vreinterpretq_u16_f16(shifted[i]), 10);
    p[i] = vmulq_f16(p[i], vreinterpretq_f16_u16(field));
  });
}

[[gnu::always_inline]] inline float16x8_t narrowed(float32x4_t low, float32x4_t high) {
  return vcvt_high_f16_f32(vcvt_f16_f32(low), high);
}

template <bool kSquares>
bool softmax_narrow(const SoftmaxJob& job) {
  constexpr int kFours = 2 * kNarrowEights;
  const auto* score = reinterpret_cast<const float16_t*>(job.scores);
  float16x8_t most[kNarrowEights];
  for (int e = 0; e < kNarrowEights; ++e) most[e] = vld1q_f16(score + 8 * e);
  // This maximum propagates NaN.
  for (std::int64_t key = 1; key < job.keys; ++key)
#pragma GCC unroll 3
    for (int e = 0; e < kNarrowEights; ++e)
      most[e] = vmaxq_f16(most[e], vld1q_f16(score + key * kHalfCols + 8 * e));
  float32x4_t largest[kFours], origin[kFours];
  for (int e = 0; e < kNarrowEights; ++e) {
    largest[2 * e] = vmulq_n_f32(vcvt_f32_f16(vget_low_f16(most[e])), kNarrowUnit);
    largest[2 * e + 1] = vmulq_n_f32(vcvt_high_f32_f16(most[e]), kNarrowUnit);
  }
  const bool any = raise_top_quads(job, largest, origin);

  // Integers below 2048 over 16, exact in f16: the norms for which this method is chosen bound the
  // origins (most_norms). Their sum with a score is 1536 / 16 and more, where a last bit is 1 / 16.
  float16x8_t least[kNarrowEights], rounder[kNarrowEights];
  for (int e = 0; e < kNarrowEights; ++e) {
    float32x4_t low[2], from[2];
    for (int h = 0; h < 2; ++h) {
      const float32x4_t field = vsubq_f32(vdupq_n_f32(kTopField), origin[2 * e + h]);
      low[h] = vmulq_n_f32(vnegq_f32(field), 1.0F / kNarrowUnit);
      from[h] = vmulq_n_f32(vaddq_f32(field, vdupq_n_f32(1536.0F)), 1.0F / kNarrowUnit);
    }
    least[e] = narrowed(low[0], low[1]);
    rounder[e] = narrowed(from[0], from[1]);
  }

  auto* weight = reinterpret_cast<float16_t*>(job.weights);
  // Summed in the order of weighted values: V = 1 gives 1.
  float16x8_t all[kNarrowEights];
  HalfSquares<kSquares> squares;
  for (std::int64_t run = 0; run < job.keys; run += job.run) {
    float16x8_t part[kNarrowEights] = {vdupq_n_f16(0), vdupq_n_f16(0), vdupq_n_f16(0)};
    squares.begin_run();
    for (std::int64_t key = 0; key < job.run; key += kNarrowTogether) {
      float16x8_t p[kNarrowChains];
      narrow_exp2(score, least, rounder, p);
#pragma GCC unroll 6
      for (int i = 0; i < kNarrowChains; ++i) {
        vst1q_f16(weight + 8 * i, p[i]);
        part[i % kNarrowEights] = vaddq_f16(part[i % kNarrowEights], p[i]);
        squares.add(i % kNarrowEights, p[i]);
      }
      score += kNarrowTogether * kHalfCols;
      weight += kNarrowTogether * kHalfCols;
    }
    for (int e = 0; e < kNarrowEights; ++e)
      all[e] = run == 0 ? part[e] : vaddq_f16(part[e], all[e]);
    squares.end_run();
  }
  squares.add_to(job);
  for (int e = 0; e < kNarrowEights; ++e)
    for (int h = 0; h < 2; ++h) {
      const std::int64_t at = 8 * e + 4 * h;
      const float32x4_t before = vmulq_f32(vld1q_f32(job.sum + at), vld1q_f32(job.rescale + at));
      const float32x4_t here =
          h == 0 ? vcvt_f32_f16(vget_low_f16(all[e])) : vcvt_high_f32_f16(all[e]);
      vst1q_f32(job.sum + at, vaddq_f32(before, here));
    }
  return any;
}

}  // namespace
}  // namespace octavo::cpu
