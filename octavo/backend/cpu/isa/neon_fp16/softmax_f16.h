// The online softmax of a query block of 24 columns with weights in f16. Weights 2^-33 below the
// largest become 0.
#pragma once

#include <arm_neon.h>

#include "octavo/backend/cpu/isa/neon/scaled_exp2_neon.h"
#include "octavo/backend/cpu/isa/neon/softmax_top_neon.h"
#include "octavo/backend/cpu/isa/neon_fp16/half_squares.h"

namespace octavo::cpu {
namespace {

constexpr int kHalfQueries = kHalfCols, kQuads = kHalfQueries / 4, kEights = kHalfQueries / 8;
constexpr float kHalfReach = 100.0F;  // far below the smallest f16

template <bool kSquares>
bool softmax_f16(const SoftmaxJob& job) {
  const float* score = job.scores;
  float32x4_t most[kQuads];
  for (int q = 0; q < kQuads; ++q) most[q] = vld1q_f32(score + 4 * q);
  // This maximum propagates NaN.
  for (std::int64_t key = 1; key < job.keys; ++key) {
    score += kHalfQueries;
#pragma GCC unroll 6
    for (int q = 0; q < kQuads; ++q) most[q] = vmaxq_f32(most[q], vld1q_f32(score + 4 * q));
  }
  float32x4_t origin[kQuads];
  const bool any = raise_top_quads(job, most, origin);
  ScaledOrigin from[kQuads];
  take_origins(job, kHalfReach, origin, from);
  float32x4_t sum[kQuads];
  for (int q = 0; q < kQuads; ++q)
    sum[q] = vmulq_f32(vld1q_f32(job.sum + 4 * q), vld1q_f32(job.rescale + 4 * q));
  score = job.scores;
  auto* weight = reinterpret_cast<float16_t*>(job.weights);
  // Summed in the order of weighted values: V = 1 gives 1.
  float16x8_t all[kEights];
  HalfSquares<kSquares> squares;
  for (std::int64_t run = 0; run < job.keys; run += job.run) {
    float16x8_t part[kEights] = {vdupq_n_f16(0), vdupq_n_f16(0), vdupq_n_f16(0)};
    squares.begin_run();
    for (std::int64_t key = 0; key < job.run;
         ++key, score += kHalfQueries, weight += kHalfQueries) {
      float32x4_t p[kQuads];
      scaled_exp2(score, from, p);
#pragma GCC unroll 3
      for (int e = 0; e < kEights; ++e) {
        const float16x8_t narrow = vcvt_high_f16_f32(vcvt_f16_f32(p[2 * e]), p[2 * e + 1]);
        vst1q_f16(weight + 8 * e, narrow);
        part[e] = vaddq_f16(part[e], narrow);
        squares.add(e, narrow);
      }
    }
    for (int e = 0; e < kEights; ++e) all[e] = run == 0 ? part[e] : vaddq_f16(part[e], all[e]);
    squares.end_run();
  }
  squares.add_to(job);
  for (int e = 0; e < kEights; ++e) {
    sum[2 * e] = vaddq_f32(sum[2 * e], vcvt_f32_f16(vget_low_f16(all[e])));
    sum[2 * e + 1] = vaddq_f32(sum[2 * e + 1], vcvt_high_f32_f16(all[e]));
  }
  for (int q = 0; q < kQuads; ++q) vst1q_f32(job.sum + 4 * q, sum[q]);
  return any;
}

}  // namespace
}  // namespace octavo::cpu
