// Attention scores by SMMLA: codes as integers, 32 products to an instruction. One-byte integers
// are one limb (attention_limbs.h); what is neither that nor exact in bf16 is two limbs, three
// products for one. Sums are those of neon_dot, bit for bit.
#include <arm_neon.h>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_exact.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_methods.h"
#include "octavo/backend/cpu/isa/neon_i8mm/i8_lanes.h"
#include "octavo/backend/cpu/isa/neon_i8mm/neon_i8mm_internal.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {

void neon_i8mm_score(const MicrokernelJob& job) {
  const std::int64_t depth = job.run;
  const std::byte *a_low = job.a + depth * kPairRows, *b_low = job.b + depth * kPairCols;
  // Unrolled: an array indexed by a variable would live in memory instead of registers.
  int32x4_t sum[kPairsUp][kPairsAcross];
#pragma GCC unroll 4
  for (int i = 0; i < kPairsUp; ++i)
#pragma GCC unroll 6
    for (int j = 0; j < kPairsAcross; ++j) sum[i][j] = vdupq_n_s32(0);
  add_pairs_run<kI8Step, kI8Step>(job.a, job.b, depth, sum, plus_i8_pairs);
#pragma GCC unroll 4
  for (int i = 0; i < kPairsUp; ++i)
#pragma GCC unroll 6
    for (int j = 0; j < kPairsAcross; ++j) sum[i][j] = vshlq_n_s32(sum[i][j], 7);
  if (job.runs > 1) {
    add_pairs_run<kI8Step, kI8Step>(job.a, b_low, depth, sum, plus_i8_pairs);
    add_pairs_run<kI8Step, kI8Step>(a_low, job.b, depth, sum, plus_i8_pairs);
  }
  write_pair_scores(job, sum, value_of_i8_sum);
}

namespace {

constexpr AttentionMethod kWideScores = with_precise(
    bf16_values("f32 FMLA scores, bf16 BFMMLA values", PackedType::f32,
                {.rows = kPairRows, .cols = kPairCols, .step = 1, .run = neon_f32_tile}),
    &kNeonFp16Wide);
constexpr AttentionMethod kI8 = with_precise(
    bf16_values("int8 SMMLA scores, bf16 BFMMLA values", PackedType::i8,
                {.rows = kPairRows, .cols = kPairCols, .step = kI8Step, .run = neon_i8mm_score}),
    &kWideScores);

}  // namespace

const AttentionMethod* neon_i8mm_attention(const AttentionJob& job) {
  if (!takes_bf16_values(job) || !is_coded(job)) return neon_bf16_attention(job);
  const auto is_bf16 = [&](const AttentionOperand& operand) {
    return is_bf16_by_row(operand.first, job.values);
  };
  const bool integers = is_integer_by_row(job.q.first) && is_integer_by_row(job.k.first);
  return integers || !is_bf16(job.q) || !is_bf16(job.k) ? &kI8 : neon_bf16_attention(job);
}

}  // namespace octavo::cpu
