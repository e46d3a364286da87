// Attention in bf16 (BFMMLA): sixteen products to an instruction, where f16 has eight and f32 four.
// Q, K and V are exact in bf16 up to scales that are factored out, and sums are f32
// (docs/numerics/gemm.md has their rounding), so that only weights are rounded, to bf16.
#include <arm_neon.h>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/attention/attention_exact.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"
#include "octavo/backend/cpu/isa/neon/scaled_exp2_neon.h"
#include "octavo/backend/cpu/isa/neon/softmax_top_neon.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_lanes.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_methods.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

// The online softmax of a query block of 12 columns with weights in bf16, packed for BFMMLA: four
// keys of a column together.
constexpr int kBf16Queries = kPairCols, kBf16Quads = kBf16Queries / 4;

// The polynomial's value for a score that is an integer is 18.1, whose exponent field is 131. So
// weights that far below, masked keys above all, have a field of 0: a subnormal number, which
// BFMMLA and BFDOT flush to zero. Above it fields stay positive: the polynomial is below 16 only
// where f is negative, and then the integer is one more.
constexpr float kBf16Reach = 131.0F;

// Four keys of four columns, rounded to nearest even: columns 0 and 1, then 2 and 3.
struct Bf16Columns {
  bfloat16x8_t first, second;
  [[gnu::always_inline]] explicit Bf16Columns(float32x4_t k0, float32x4_t k1, float32x4_t k2,
                                              float32x4_t k3) {
    const uint16x8_t even = both(k0, k2), odd = both(k1, k3);
    const uint32x4_t upper = vreinterpretq_u32_u16(vzip1q_u16(even, odd)),
                     lower = vreinterpretq_u32_u16(vzip2q_u16(even, odd));
    first = vreinterpretq_bf16_u32(vzip1q_u32(upper, lower));
    second = vreinterpretq_bf16_u32(vzip2q_u32(upper, lower));
  }

 private:
  [[gnu::always_inline]] static uint16x8_t both(float32x4_t low, float32x4_t high) {
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high));
  }
};

// Hidden from the compiler: GCC 12 makes "fmov v.8h, #1.0" of it, which is the 1 of f16.
[[gnu::always_inline]] inline bfloat16x8_t bf16_ones() {
  std::uint16_t one = 0x3F80;
  asm("" : "+r"(one));
  return vreinterpretq_bf16_u16(vdupq_n_u16(one));
}

inline bool softmax_bf16(const SoftmaxJob& job) {
  constexpr int kTogether = 2;  // keys per step of the maximum: six independent chains
  const float* score = job.scores;
  float32x4_t most[kTogether * kBf16Quads];
  for (int i = 0; i < kTogether * kBf16Quads; ++i) most[i] = vld1q_f32(score + 4 * i);
  // This maximum propagates NaN.
  for (std::int64_t key = kTogether; key < job.keys; key += kTogether) {
    score += kTogether * kBf16Queries;
#pragma GCC unroll 6
    for (int i = 0; i < kTogether * kBf16Quads; ++i)
      most[i] = vmaxq_f32(most[i], vld1q_f32(score + 4 * i));
  }
  float32x4_t largest[kBf16Quads], origin[kBf16Quads];
  for (int q = 0; q < kBf16Quads; ++q) largest[q] = vmaxq_f32(most[q], most[q + kBf16Quads]);
  const bool any = raise_top_quads(job, largest, origin);
  ScaledOrigin from[kBf16Quads];
  take_origins(job, kBf16Reach, origin, from);

  // Sums the packed weights by a product with ones: two sums for each column, in neighbouring
  // lanes.
  const bfloat16x8_t one = bf16_ones();
  float32x4_t sum[kBf16Quads][2];
  for (int q = 0; q < kBf16Quads; ++q) sum[q][0] = sum[q][1] = vdupq_n_f32(0.0F);
  score = job.scores;
  auto* weight = reinterpret_cast<bfloat16_t*>(job.weights);
  for (std::int64_t key = 0; key < job.keys; key += kBf16Step) {
    float32x4_t p[kBf16Step][kBf16Quads];
#pragma GCC unroll 4
    for (int k = 0; k < kBf16Step; ++k) scaled_exp2(score + k * kBf16Queries, from, p[k]);
#pragma GCC unroll 3
    for (int q = 0; q < kBf16Quads; ++q) {
      const Bf16Columns four(p[0][q], p[1][q], p[2][q], p[3][q]);
      vst1q_bf16(weight + 4 * q * kBf16Step, four.first);
      vst1q_bf16(weight + 4 * q * kBf16Step + 8, four.second);
      sum[q][0] = vbfdotq_f32(sum[q][0], four.first, one);
      sum[q][1] = vbfdotq_f32(sum[q][1], four.second, one);
    }
    score += kBf16Step * kBf16Queries;
    weight += kBf16Step * kBf16Queries;
  }
  for (int q = 0; q < kBf16Quads; ++q) {
    const float32x4_t before =
        vmulq_f32(vld1q_f32(job.sum + 4 * q), vld1q_f32(job.rescale + 4 * q));
    vst1q_f32(job.sum + 4 * q, vaddq_f32(before, vpaddq_f32(sum[q][0], sum[q][1])));
  }
  return any;
}

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
