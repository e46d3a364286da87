// Attention with weights in f16 (half-precision FMLA): weighted values, MR x NR of 8 channels by 24
// queries, runs of keys summed in f16 and then in f32; and scores in f16.
#include <arm_neon.h>

#include <algorithm>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa/neon_fp16/half_methods.h"
#include "octavo/backend/cpu/isa/neon_fp16/softmax_f16.h"
#include "octavo/backend/cpu/isa/neon_fp16/softmax_narrow.h"
#include "octavo/backend/cpu/isa/neon_fp16/transpose_eight.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

// Partial sums in f16 between one run and the next.
using Stage = float16_t[kHalfRows][kHalfCols];

enum class To {
  stage,   // sums are stored there and read again
  add,     // times the factor, added to sums whose pitch is the query block
  write,   // the same, over what was there
  narrow,  // times the factor in f16, over what was there, which is f16
};

// The products of one run. `kFollows`: what is in the stage is added.
template <bool kFollows, To kTo>
[[gnu::always_inline]] inline void half_run(const float16_t* a, const float16_t* b, std::int64_t n,
                                            Stage& stage, float32x4_t factor, float* sums) {
  const float16x8_t short_factor = vdupq_n_f16(static_cast<float16_t>(vgetq_lane_f32(factor, 0)));
  float16x8_t sum[kHalfRows][kHalfVectors];
  half_start(a, b, sum);
  const float16_t* const end = a + n * kHalfRows;
  for (a += kHalfRows, b += kHalfCols; a < end; a += kHalfRows, b += kHalfCols)
    half_step(a, b, sum);
#pragma GCC unroll 8
  for (int i = 0; i < kHalfRows; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < kHalfVectors; ++j) {
      float16x8_t all = sum[i][j];
      if constexpr (kFollows) all = vaddq_f16(all, vld1q_f16(&stage[i][8 * j]));
      if constexpr (kTo == To::stage) {
        vst1q_f16(&stage[i][8 * j], all);
        continue;
      }
      if constexpr (kTo == To::narrow) {
        vst1q_f16(reinterpret_cast<float16_t*>(sums) + i * kHalfCols + 8 * j,
                  vmulq_f16(all, short_factor));
        continue;
      }
      float* to = sums + i * kHalfCols + 8 * j;
      const float32x4_t low = vcvt_f32_f16(vget_low_f16(all)), high = vcvt_high_f32_f16(all);
      if constexpr (kTo == To::add) {
        vst1q_f32(to, vfmaq_f32(vld1q_f32(to), low, factor));
        vst1q_f32(to + 4, vfmaq_f32(vld1q_f32(to + 4), high, factor));
      } else {
        vst1q_f32(to, vmulq_f32(low, factor));
        vst1q_f32(to + 4, vmulq_f32(high, factor));
      }
    }
}

// At most `group` products in runs of `run`: sums of runs are added in f16, one rounding for each,
// before they are converted to f32. Conversion of f16 to f32 runs on one of the two pipes only.
template <To kTo>
void half_group(const float16_t* a, const float16_t* b, std::int64_t n, std::int64_t run,
                float32x4_t factor, float* sums) {
  Stage stage;
  if (n <= run) return half_run<false, kTo>(a, b, n, stage, factor, sums);
  half_run<false, To::stage>(a, b, run, stage, factor, sums);
  for (a += run * kHalfRows, b += run * kHalfCols, n -= run; n > run;
       a += run * kHalfRows, b += run * kHalfCols, n -= run)
    half_run<true, To::stage>(a, b, run, stage, factor, sums);
  half_run<true, kTo>(a, b, n, stage, factor, sums);
}

constexpr AttentionMethod kF16 = half_scores("f16 FMLA", &kNeonFp16WideScores),
                          kNarrow = narrow_scores(kF16);

}  // namespace

// Values (not codes) are computed in f32, to keep the 16 bits that the caller gives. In f16 a row
// of few large weights would be off by half a per cent.
constinit const AttentionMethod kNeonFp16Wide{
    .name = "f32 FMLA",
    .score = {.rows = 8, .cols = 12, .step = 1, .run = neon_f32_tile},
    .weigh = {.rows = 8, .cols = 12, .step = 1, .run = neon_f32_tile},
    .softmax = neon_softmax,
    .tile_keys = 32,
    .interleave = neon_interleave_words,
    .narrow = neon_fp16_narrow,
    .widen = neon_fp16_widen,
    .decode_kernels = neon_fp16_decode_attention};

constinit const AttentionMethod kNeonFp16WideScores =
    half_values("f32 FMLA scores, f16 FMLA values", PackedType::f32,
                {.rows = 8, .cols = 12, .step = 1, .run = neon_f32_tile});

void neon_fp16_interleave(const std::uint16_t* const* rows, int count, std::int64_t n,
                          std::uint16_t* panel) {
  for (int r = 0; r < count; r += 8) {
    std::int64_t d = 0;
    for (; d + 8 <= n; d += 8) {
      uint16x8_t x[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) x[i] = vld1q_u16(rows[r + i] + d);
      store_transposed(x, panel + d * count + r, count);
    }
    for (; d < n; ++d)
      for (int i = 0; i < 8; ++i) panel[d * count + r + i] = rows[r + i][d];
  }
}

void neon_fp16_widen(const std::byte* from, float* to, std::int64_t n) {
  const auto* half = reinterpret_cast<const float16_t*>(from);
  for (std::int64_t i = 0; i < n; i += 8) {
    const float16x8_t eight = vld1q_f16(half + i);
    vst1q_f32(to + i, vcvt_f32_f16(vget_low_f16(eight)));
    vst1q_f32(to + i + 4, vcvt_high_f32_f16(eight));
  }
}

bool neon_fp16_softmax(const SoftmaxJob& job) {
  return job.weight_squares != nullptr ? softmax_f16<true>(job) : softmax_f16<false>(job);
}
bool neon_fp16_softmax_narrow(const SoftmaxJob& job) {
  return job.weight_squares != nullptr ? softmax_narrow<true>(job) : softmax_narrow<false>(job);
}

void neon_fp16_weigh(const MicrokernelJob& job) {
  half_group<To::add>(reinterpret_cast<const float16_t*>(job.a),
                      reinterpret_cast<const float16_t*>(job.b), job.run * job.runs, job.run,
                      vld1q_dup_f32(job.a_scale), job.sums);
}

void neon_fp16_score(const MicrokernelJob& job) {
  const auto* a = reinterpret_cast<const float16_t*>(job.a);
  const auto* b = reinterpret_cast<const float16_t*>(job.b);
  const float32x4_t factor = vdupq_n_f32(*job.a_scale * *job.b_scale);
  half_group<To::write>(a, b, std::min(job.run, kScoreGroup), kScoreRun, factor, job.sums);
  for (std::int64_t k = kScoreGroup; k < job.run; k += kScoreGroup)
    half_group<To::add>(a + k * kHalfRows, b + k * kHalfCols, std::min(job.run - k, kScoreGroup),
                        kScoreRun, factor, job.sums);
}

// The factor is a power of two, and at most 1 where scores may be narrow. Where f16 does not have
// it, sums are scaled in two steps; the loss is then below 2^-19 of a unit of log2.
void neon_fp16_score_narrow(const MicrokernelJob& job) {
  constexpr float kLeast = 0x1p-14F;
  const float factor = *job.a_scale * *job.b_scale * (1.0F / kNarrowUnit);
  const float first = factor < kLeast ? kLeast : factor;
  half_group<To::narrow>(reinterpret_cast<const float16_t*>(job.a),
                         reinterpret_cast<const float16_t*>(job.b), job.run, kScoreRun,
                         vdupq_n_f32(first), job.sums);
  if (factor == first) return;
  auto* scores = reinterpret_cast<float16_t*>(job.sums);
  const float16x8_t rest = vdupq_n_f16(static_cast<float16_t>(factor / kLeast));
  for (int at = 0; at < kHalfRows * kHalfCols; at += 8)
    vst1q_f16(scores + at, vmulq_f16(vld1q_f16(scores + at), rest));
}

const AttentionMethod* neon_fp16_attention(const AttentionJob& job) {
  if (!is_fast_attention(job) || !is_short_p(job)) return neon_attention(job);
  if (!is_coded(job)) return &kNeonFp16Wide;
  return takes_narrow_scores(job) ? &kNarrow : &kF16;
}

}  // namespace octavo::cpu
