// The softmax of a strip of 24 columns whose weights are f16.
//
// Weights of one row may have any factor in common, since they are divided by their sum. So 2^f is
// not a polynomial of degree 3 but that over its first coefficient, (f + a) (f^2 + b f + c), which
// saves a product: 11 operations for four, relative error 7.5e-5 before the rounding to f16, whose
// half step is 2.4e-4 to 4.9e-4. What lies 2^-33 below the largest weight becomes 0.
#pragma once

#include <arm_neon.h>

#include "octavo/backend/cpu/attention_softmax.h"
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

// raise_top of attention_softmax.h, four columns at a time.
[[gnu::always_inline]] inline bool raise_half_top(const SoftmaxJob& job,
                                                  const float32x4_t (&largest)[kQuads],
                                                  HalfOrigin (&from)[kQuads]) {
  const float32x4_t nothing = vdupq_n_f32(-std::numeric_limits<float>::infinity());
  uint32x4_t same = vdupq_n_u32(~0u);
  for (int q = 0; q < kQuads; ++q) {
    const float32x4_t before = vld1q_f32(job.base + 4 * q);
    // The first maximum keeps NaN, the second one does not take it.
    const float32x4_t top = vmaxq_f32(vld1q_f32(job.top + 4 * q), largest[q]);
    const float32x4_t base = vmaxnmq_f32(before, vrndpq_f32(top));
    vst1q_f32(job.top + 4 * q, top);
    vst1q_f32(job.base + 4 * q, base);
    const uint32x4_t stays = vorrq_u32(vceqq_f32(before, base), vceqq_f32(before, nothing));
    // An integer, and 0 for what is below -126.
    const int32x4_t fall = vmaxq_s32(vcvtq_s32_f32(vsubq_f32(before, base)), vdupq_n_s32(-127));
    const float32x4_t power =
        vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(fall, vdupq_n_s32(127)), 23));
    vst1q_f32(job.rescale + 4 * q, vbslq_f32(stays, vdupq_n_f32(1.0F), power));
    same = vandq_u32(same, stays);
    // 0 where a column has seen nothing yet.
    const float32x4_t origin = vsubq_f32(
        vbslq_f32(vcgtq_f32(base, nothing), base, vdupq_n_f32(0.0F)), vdupq_n_f32(kHalfExponent));
    from[q].least = vsubq_f32(origin, vdupq_n_f32(100.0F));
    from[q].rounder = vsubq_f32(vdupq_n_f32(kHalfRounder), origin);
  }
  return vminvq_u32(same) == 0;
}

// Where an origin is so large that the rounder less it has no place for integers, scores are
// brought to it first. Such scores have no fractions left, so this is rare.
inline void move_large_origins(const SoftmaxJob& job, HalfOrigin (&from)[kQuads]) {
  constexpr float kMost = 0x1p+21F;
  float32x4_t origin[kQuads], largest = vdupq_n_f32(0.0F);
  for (int q = 0; q < kQuads; ++q) {
    const float32x4_t base = vld1q_f32(job.base + 4 * q);
    const uint32x4_t seen = vcgtq_f32(base, vdupq_n_f32(-std::numeric_limits<float>::infinity()));
    origin[q] = vbslq_f32(seen, base, vdupq_n_f32(0.0F));
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
  HalfOrigin from[kQuads];
  const bool any = raise_half_top(job, most, from);
  move_large_origins(job, from);
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
