// Attention in bf16 (BFMMLA): sixteen products to an instruction, where f16 has eight and f32 four.
// Q, K and V are exact in bf16 up to scales that are factored out, and sums are f32
// (docs/numerics/gemm.md has their rounding), so that only weights are rounded, to bf16.
#include <arm_neon.h>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_exact.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_methods.h"
#include "octavo/backend/cpu/isa/neon_bf16/softmax_bf16.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

[[gnu::always_inline]] inline void sums_of(const MicrokernelJob& job,
                                           float32x4_t (&sum)[kPairsUp][kPairsAcross]) {
  // Unrolled: an array indexed by a variable would live in memory instead of registers.
#pragma GCC unroll 4
  for (int i = 0; i < kPairsUp; ++i)
#pragma GCC unroll 6
    for (int j = 0; j < kPairsAcross; ++j) sum[i][j] = vdupq_n_f32(0.0F);
  add_pairs_run<kBf16Step, kBf16StepBytes>(job.a, job.b, job.run, sum, plus_bf16_pairs);
}

constexpr auto as_it_is = [](float32x4_t sum) { return sum; };

void score(const MicrokernelJob& job) {
  float32x4_t sum[kPairsUp][kPairsAcross];
  sums_of(job, sum);
  write_pair_scores(job, sum, as_it_is);
}

constexpr AttentionMethod kBf16 = with_precise(
    bf16_values("bf16 BFMMLA", PackedType::bf16,
                {.rows = kPairRows, .cols = kPairCols, .step = kBf16Step, .run = score}),
    &kNeonFp16Wide);

}  // namespace

bool neon_bf16_softmax(const SoftmaxJob& job) { return softmax_bf16(job); }

void neon_bf16_weigh(const MicrokernelJob& job) {
  float32x4_t sum[kPairsUp][kPairsAcross];
  sums_of(job, sum);
  const float32x4_t factor = vld1q_dup_f32(job.a_scale);
  float* const sums = job.sums;
  const std::int64_t pitch = job.pitch;
  for_pair_rows(sum, as_it_is, [&](int row, int col, float32x4_t four) {
    float* to = sums + row * pitch + col;
    vst1q_f32(to, vfmaq_f32(vld1q_f32(to), four, factor));
  });
}

bool takes_bf16_values(const AttentionJob& job) {
  return is_fast_attention(job) && is_short_p(job) &&
         is_bf16_by_tile(job.v.first, job.values, kBf16TileKeys);
}

const AttentionMethod* neon_bf16_attention(const AttentionJob& job) {
  return takes_bf16_values(job) && is_bf16_by_row(job.q.first, job.values) &&
                 is_bf16_by_row(job.k.first, job.values)
             ? &kBf16
             : neon_dot_attention(job);
}

}  // namespace octavo::cpu
