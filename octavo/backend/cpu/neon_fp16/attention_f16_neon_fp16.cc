// Weighted values in f16: eight channels by 24 queries, runs of 32 keys in f16 and then in f32.
#include <arm_neon.h>

#include "octavo/backend/cpu/attention.h"
#include "octavo/backend/cpu/neon/neon_internal.h"
#include "octavo/backend/cpu/neon_fp16/half_tile.h"
#include "octavo/backend/cpu/neon_fp16/neon_fp16_internal.h"
#include "octavo/backend/cpu/neon_fp16/softmax_f16.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC moves loads up before it hands out registers, and then runs out of them.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

constexpr AttentionMethod kF16{
    .name = "f32 FMLA scores, f16 FMLA values",
    .score = {.rows = 8, .cols = 12, .step = 1, .run = neon_f32_tile},
    .weigh_lane = Lane::f16,
    .weigh = {.rows = kHalfRows, .cols = kHalfCols, .step = 1, .run = neon_fp16_weigh},
    .softmax = neon_fp16_softmax,
    .weight_factor = kHalfFactor,
    .tile_keys = 64,
    .interleave = neon_interleave_words,
    .narrow = neon_fp16_narrow};

}  // namespace

bool neon_fp16_softmax(const SoftmaxJob& job) { return softmax_f16(job); }

void neon_fp16_weigh(const TileJob& job) {
  const auto* a = reinterpret_cast<const float16_t*>(job.a);
  const auto* b = reinterpret_cast<const float16_t*>(job.b);
  const float32x4_t factor = vld1q_dup_f32(job.a_scale);
  float* const sums = job.sums;
  const std::int64_t run = job.run, runs = job.runs, pitch = job.pitch;
  for (std::int64_t r = 0; r < runs; ++r) {
    float16x8_t sum[kHalfRows][kHalfVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kHalfRows; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < kHalfVectors; ++j) sum[i][j] = vdupq_n_f16(0);
    for (std::int64_t k = 0; k < run; ++k, a += kHalfRows, b += kHalfCols) half_step(a, b, sum);
#pragma GCC unroll 8
    for (int i = 0; i < kHalfRows; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < kHalfVectors; ++j) {
        float* to = sums + i * pitch + 8 * j;
        const float32x4_t low = vcvt_f32_f16(vget_low_f16(sum[i][j])),
                          high = vcvt_high_f32_f16(sum[i][j]);
        vst1q_f32(to, vfmaq_f32(vld1q_f32(to), low, factor));
        vst1q_f32(to + 4, vfmaq_f32(vld1q_f32(to + 4), high, factor));
      }
  }
}

const AttentionMethod* neon_fp16_attention(const AttentionJob& job) {
  return is_fast_attention(job) && is_short_p(job) ? &kF16 : neon_attention(job);
}

}  // namespace octavo::cpu
