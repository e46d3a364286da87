// The softmax of a strip of 24 columns whose weights are f16.
//
// Weights of one row may have any factor in common, since they are divided by their sum. So 2^f is
// not a polynomial of degree 3 but that over its first coefficient, (f + a) (f^2 + b f + c), which
// saves a product: 11 operations for four, relative error 7.5e-5 before the rounding to f16, whose
// half step is 2.4e-4 to 4.9e-4. What lies 2^-33 below the largest weight becomes 0.
#pragma once

#include <arm_neon.h>

#include "octavo/backend/cpu/neon/softmax_top_neon.h"
#include "octavo/backend/cpu/neon_fp16/half_tile.h"

namespace octavo::cpu {
namespace {

constexpr int kHalfStrip = kHalfCols, kQuads = kHalfStrip / 4, kEights = kHalfStrip / 8;
constexpr float kHalfRounder = 0x1.8p+23F;

// What exponents of a column are taken from. It is an integer, so that a score and the rounder are
// brought together by one addition.
struct HalfOrigin {
  float32x4_t least;    // a score below this has a weight of 0
  float32x4_t rounder;  // kHalfRounder less the origin
};

// Of six vectors side by side: a chain by itself leaves the core waiting. No fused products: their
// constants would be copied first.
[[gnu::always_inline]] inline void scaled_exp2(const float* score, const HalfOrigin (&from)[kQuads],
                                               float32x4_t (&p)[kQuads]) {
  const float32x4_t a = vdupq_n_f32(0x1.2b4eb284d9d3fp+1F), b = vdupq_n_f32(0x1.078ed91873ebap+1F),
                    c = vdupq_n_f32(0x1.f00cb3cb101fep+2F);
  float32x4_t f[kQuads], shifted[kQuads];
#pragma GCC unroll 6
  for (int q = 0; q < kQuads; ++q) f[q] = vmaxq_f32(vld1q_f32(score + 4 * q), from[q].least);
#pragma GCC unroll 6
  for (int q = 0; q < kQuads; ++q) shifted[q] = vaddq_f32(f[q], from[q].rounder);
#pragma GCC unroll 6
  for (int q = 0; q < kQuads; ++q) f[q] = vsubq_f32(f[q], vsubq_f32(shifted[q], from[q].rounder));
#pragma GCC unroll 6
  for (int q = 0; q < kQuads; ++q) p[q] = vaddq_f32(vmulq_f32(vaddq_f32(f[q], b), f[q]), c);
#pragma GCC unroll 6
  for (int q = 0; q < kQuads; ++q) p[q] = vmulq_f32(vaddq_f32(f[q], a), p[q]);
#pragma GCC unroll 6
  for (int q = 0; q < kQuads; ++q)
    p[q] = vreinterpretq_f32_s32(
        vaddq_s32(vreinterpretq_s32_f32(p[q]), vshlq_n_s32(vreinterpretq_s32_f32(shifted[q]), 23)));
}

// Where an origin is so large that the rounder less it has no place for integers, scores are
// brought to it first. Such scores have no fractions left, so this is rare.
[[gnu::always_inline]] inline void take_origins(const SoftmaxJob& job,
                                                const float32x4_t (&origin)[kQuads],
                                                HalfOrigin (&from)[kQuads]) {
  constexpr float kMost = 0x1p+21F;
  float32x4_t largest = vdupq_n_f32(0.0F);
  for (int q = 0; q < kQuads; ++q) {
    const float32x4_t there = vsubq_f32(origin[q], vdupq_n_f32(kHalfExponent));
    from[q].least = vsubq_f32(there, vdupq_n_f32(100.0F));
    from[q].rounder = vsubq_f32(vdupq_n_f32(kHalfRounder), there);
    largest = vmaxq_f32(largest, vabsq_f32(origin[q]));
  }
  if (vmaxvq_f32(largest) <= kMost) return;
  for (int q = 0; q < kQuads; ++q) {
    for (std::int64_t key = 0; key < job.keys; ++key) {
      float* score = job.scores + key * kHalfStrip + 4 * q;
      vst1q_f32(score, vsubq_f32(vld1q_f32(score), origin[q]));
    }
    from[q].least = vdupq_n_f32(-kHalfExponent - 100.0F);
    from[q].rounder = vdupq_n_f32(kHalfRounder + kHalfExponent);
  }
}

inline bool softmax_f16(const SoftmaxJob& job) {
  const float* score = job.scores;
  float32x4_t most[kQuads];
  for (int q = 0; q < kQuads; ++q) most[q] = vld1q_f32(score + 4 * q);
  // This maximum keeps NaN.
  for (std::int64_t key = 1; key < job.keys; ++key) {
    score += kHalfStrip;
#pragma GCC unroll 6
    for (int q = 0; q < kQuads; ++q) most[q] = vmaxq_f32(most[q], vld1q_f32(score + 4 * q));
  }
  float32x4_t origin[kQuads];
  const bool any = raise_top_quads(job, most, origin);
  HalfOrigin from[kQuads];
  take_origins(job, origin, from);
  float32x4_t sum[kQuads];
  for (int q = 0; q < kQuads; ++q)
    sum[q] = vmulq_f32(vld1q_f32(job.sum + 4 * q), vld1q_f32(job.rescale + 4 * q));
  score = job.scores;
  auto* weight = reinterpret_cast<float16_t*>(job.weights);
  // Summed as values are: V = 1 gives 1.
  float16x8_t all[kEights];
  for (std::int64_t run = 0; run < job.keys; run += job.run) {
    float16x8_t part[kEights] = {vdupq_n_f16(0), vdupq_n_f16(0), vdupq_n_f16(0)};
    for (std::int64_t key = 0; key < job.run; ++key, score += kHalfStrip, weight += kHalfStrip) {
      float32x4_t p[kQuads];
      scaled_exp2(score, from, p);
#pragma GCC unroll 3
      for (int e = 0; e < kEights; ++e) {
        const float16x8_t narrow = vcvt_high_f16_f32(vcvt_f16_f32(p[2 * e]), p[2 * e + 1]);
        vst1q_f16(weight + 8 * e, narrow);
        part[e] = vaddq_f16(part[e], narrow);
      }
    }
    for (int e = 0; e < kEights; ++e) all[e] = run == 0 ? part[e] : vaddq_f16(part[e], all[e]);
  }
  for (int e = 0; e < kEights; ++e) {
    sum[2 * e] = vaddq_f32(sum[2 * e], vcvt_f32_f16(vget_low_f16(all[e])));
    sum[2 * e + 1] = vaddq_f32(sum[2 * e + 1], vcvt_high_f32_f16(all[e]));
  }
  for (int q = 0; q < kQuads; ++q) vst1q_f32(job.sum + 4 * q, sum[q]);
  return any;
}

}  // namespace
}  // namespace octavo::cpu
