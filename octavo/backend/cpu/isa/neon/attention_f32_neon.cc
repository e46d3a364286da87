// Attention in f32 (NEON FMLA): the 8 x 12 GEMM microkernel, 8 keys or channels by 12 queries, and
// the softmax.
#include <arm_neon.h>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon/softmax_top_neon.h"

namespace octavo::cpu {
namespace {

constexpr int kQueries = 12, kQuads = kQueries / 4;
constexpr int kTogether =
    2;  // keys: six independent chains; a single dependency chain stalls the core
constexpr int kChains = kTogether * kQuads;

// exp2_of of attention_softmax.h, with its polynomial.
[[gnu::always_inline]] inline void exp2_quads(float32x4_t (&x)[kChains]) {
  const float32x4_t rounder = vdupq_n_f32(0x1.8p+23F), least = vdupq_n_f32(-126.0F);
  float32x4_t f[kChains], shifted[kChains], p[kChains];
  const auto each = [](auto&& one) {
#pragma GCC unroll 6
    for (int i = 0; i < kChains; ++i) one(i);
  };
  each([&](int i) { f[i] = vmaxq_f32(x[i], least); });
  each([&](int i) { shifted[i] = vaddq_f32(f[i], rounder); });
  each([&](int i) { f[i] = vsubq_f32(f[i], vsubq_f32(shifted[i], rounder)); });
  each([&](int i) { p[i] = vmulq_n_f32(f[i], 0x1.5c08e5p-10F); });
  each([&](int i) { p[i] = vmulq_f32(vaddq_f32(p[i], vdupq_n_f32(0x1.3d0c53p-7F)), f[i]); });
  each([&](int i) { p[i] = vmulq_f32(vaddq_f32(p[i], vdupq_n_f32(0x1.c6b6e5p-5F)), f[i]); });
  each([&](int i) { p[i] = vmulq_f32(vaddq_f32(p[i], vdupq_n_f32(0x1.ebf917p-3F)), f[i]); });
  each([&](int i) { p[i] = vmulq_f32(vaddq_f32(p[i], vdupq_n_f32(0x1.62e429p-1F)), f[i]); });
  each([&](int i) { p[i] = vaddq_f32(p[i], vdupq_n_f32(0x1.000001p+0F)); });
  each([&](int i) {
    const int32x4_t bits =
        vaddq_s32(vreinterpretq_s32_f32(p[i]), vshlq_n_s32(vreinterpretq_s32_f32(shifted[i]), 23));
    x[i] = vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_s32(bits), vcgtq_f32(x[i], least)));
  });
}

}  // namespace

bool neon_softmax(const SoftmaxJob& job) {
  static_assert(kMaxTileKeys % kTogether == 0);
  const float* score = job.scores;
  float32x4_t most[kQuads], origin[kQuads], sum[kQuads];
  for (int q = 0; q < kQuads; ++q) most[q] = vld1q_f32(score + 4 * q);
  // This maximum propagates NaN.
  for (std::int64_t key = 0; key < job.keys; ++key, score += kQueries)
#pragma GCC unroll 3
    for (int q = 0; q < kQuads; ++q) most[q] = vmaxq_f32(most[q], vld1q_f32(score + 4 * q));
  const bool any = raise_top_quads(job, most, origin);
  for (int q = 0; q < kQuads; ++q)
    sum[q] = vmulq_f32(vld1q_f32(job.sum + 4 * q), vld1q_f32(job.rescale + 4 * q));
  score = job.scores;
  auto* weight = reinterpret_cast<float*>(job.weights);
  for (std::int64_t key = 0; key < job.keys; key += kTogether) {
    float32x4_t x[kChains];
#pragma GCC unroll 6
    for (int i = 0; i < kChains; ++i)
      x[i] = vsubq_f32(vld1q_f32(score + 4 * i), origin[i % kQuads]);
    exp2_quads(x);
#pragma GCC unroll 6
    for (int i = 0; i < kChains; ++i) {
      vst1q_f32(weight + 4 * i, x[i]);
      sum[i % kQuads] = vaddq_f32(sum[i % kQuads], x[i]);
    }
    score += kTogether * kQueries;
    weight += kTogether * kQueries;
  }
  for (int q = 0; q < kQuads; ++q) vst1q_f32(job.sum + 4 * q, sum[q]);
  return any;
}

namespace {

// The same as kNeonF32.tile, which is not a constant expression.
constexpr AttentionMethod kF32{.name = "f32 FMLA",
                               .score = {.rows = 8, .cols = 12, .step = 1, .run = neon_f32_tile},
                               .weigh = {.rows = 8, .cols = 12, .step = 1, .run = neon_f32_tile},
                               .softmax = neon_softmax,
                               .tile_keys = 32,
                               .interleave = neon_interleave_words};

}  // namespace

const AttentionMethod* neon_attention(const AttentionJob& job) {
  return is_fast_attention(job) ? &kF32 : nullptr;
}

}  // namespace octavo::cpu
