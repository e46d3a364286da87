// Softmax weights in a 16-bit type (f16, bf16), by a scaled 2^x of scores in f32.
//
// Weights of one row may have any factor in common, since they are divided by their sum. So 2^f is
// not a polynomial of degree 3 but that over its first coefficient, (f + a) (f^2 + b f + c), which
// saves a product: 11 operations for four, relative error 7.5e-5. Half a step of f16 is 2.4e-4 to
// 4.9e-4, one of bf16 eight times that.
#pragma once

#include <arm_neon.h>

#include "octavo/backend/cpu/attention/attention.h"

namespace octavo::cpu {
namespace {

// Weights are at most 2^3 over the first coefficient of the polynomial: 145.
constexpr float kScaledExponent = 3.0F;
constexpr float kScaledFactor = 8.0F / 0x1.c3f75fba75509p-5F;
constexpr float kScaledRounder = 0x1.8p+23F;

// The origin of a column's exponents: its running maximum rounded up. It is an integer, so that one
// addition combines a score and the rounder.
struct ScaledOrigin {
  float32x4_t least;    // scores below this have the weight of this
  float32x4_t rounder;  // kScaledRounder less the origin
};

// Several vectors interleaved: a single dependency chain stalls the core. No fused products: their
// constants would be copied first.
template <int kQuads>
[[gnu::always_inline]] inline void scaled_exp2(const float* score,
                                               const ScaledOrigin (&from)[kQuads],
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

// `reach`: how far below the polynomial's own values weights go, as a power of two; an integer.
//
// Where an origin is so large that the rounder less it cannot hold integers, the origin is
// subtracted from scores first. Such scores have no fraction bits left, so this is rare.
template <int kQuads>
[[gnu::always_inline]] inline void take_origins(const SoftmaxJob& job, float reach,
                                                const float32x4_t (&origin)[kQuads],
                                                ScaledOrigin (&from)[kQuads]) {
  constexpr float kMax = 0x1p+21F;
  float32x4_t largest = vdupq_n_f32(0.0F);
  for (int q = 0; q < kQuads; ++q) {
    const float32x4_t there = vsubq_f32(origin[q], vdupq_n_f32(kScaledExponent));
    from[q].least = vsubq_f32(there, vdupq_n_f32(reach));
    from[q].rounder = vsubq_f32(vdupq_n_f32(kScaledRounder), there);
    largest = vmaxq_f32(largest, vabsq_f32(origin[q]));
  }
  if (vmaxvq_f32(largest) <= kMax) return;
  for (int q = 0; q < kQuads; ++q) {
    for (std::int64_t key = 0; key < job.keys; ++key) {
      float* score = job.scores + (key * kQuads + q) * 4;
      vst1q_f32(score, vsubq_f32(vld1q_f32(score), origin[q]));
    }
    from[q].least = vdupq_n_f32(-kScaledExponent - reach);
    from[q].rounder = vdupq_n_f32(kScaledRounder + kScaledExponent);
  }
}

}  // namespace
}  // namespace octavo::cpu
