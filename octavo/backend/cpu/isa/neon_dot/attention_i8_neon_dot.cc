// Attention scores by SDOT: codes as integers in two int8 limbs (attention_limbs.h), three int8
// products for one of f32, and four of them to a lane and instruction. Sums are exact;
// docs/numerics/attention.md bounds what limbs leave out.
#include <arm_neon.h>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_limbs.h"
#include "octavo/backend/cpu/isa/neon_dot/dot_tile.h"
#include "octavo/backend/cpu/isa/neon_dot/neon_dot_internal.h"
#include "octavo/backend/cpu/isa/neon_fp16/half_methods.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

[[gnu::always_inline]] inline void add_products(const std::int8_t* a, const std::int8_t* b,
                                                std::int64_t depth,
                                                int32x4_t (&sum)[kRows][kVectors]) {
  for (std::int64_t k = 0; k < depth; k += kStep, a += kRows * kStep, b += kCols * kStep)
    step(a, b, sum);
}

}  // namespace

void neon_dot_score(const MicrokernelJob& job) {
  const auto* a = reinterpret_cast<const std::int8_t*>(job.a);
  const auto* b = reinterpret_cast<const std::int8_t*>(job.b);
  const std::int64_t depth = job.run, pitch = job.pitch;
  const std::int8_t *a_low = a + depth * kRows, *b_low = b + depth * kCols;
  const float *a_scale = job.a_scale, *b_scale = job.b_scale;
  float* const sums = job.sums;
  // Unrolled: an array indexed by a variable would live in memory instead of registers.
  int32x4_t sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) sum[i][j] = vdupq_n_s32(0);
  add_products(a, b, depth, sum);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) sum[i][j] = vshlq_n_s32(sum[i][j], 7);
  if (job.runs > 1) {
    add_products(a, b_low, depth, sum);
    add_products(a_low, b, depth, sum);
  }
#pragma GCC unroll 3
  for (int j = 0; j < kVectors; ++j) {
    const float32x4_t right = vld1q_f32(b_scale + 4 * j);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
      vst1q_f32(sums + i * pitch + 4 * j,
                vmulq_f32(vcvtq_f32_s32(sum[i][j]), vmulq_n_f32(right, a_scale[i])));
  }
}

namespace {

constexpr AttentionMethod kLimbs =
    with_precise(half_values("int8 SDOT scores, f16 FMLA values", PackedType::i8,
                             {.rows = kRows, .cols = kCols, .step = kStep, .run = neon_dot_score}),
                 &kNeonFp16WideScores);
constexpr AttentionMethod kHalves = half_scores("f16 FMLA; int8 SDOT for large scores", &kLimbs),
                          kNarrow = narrow_scores(kHalves);

}  // namespace

const AttentionMethod* neon_dot_attention(const AttentionJob& job) {
  if (!is_fast_attention(job) || !is_short_p(job) || !is_coded(job))
    return neon_fp16_attention(job);
  return takes_narrow_scores(job) ? &kNarrow : &kHalves;
}

}  // namespace octavo::cpu
