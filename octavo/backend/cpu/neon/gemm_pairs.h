// Tiles of matrix instructions, which multiply two rows with two columns at a time: a panel of A
// holds pairs of rows, one of B pairs of columns, and an accumulator is [row 0 | row 1] x [col 0,
// col 1].
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "octavo/backend/cpu/gemm.h"

namespace octavo::cpu {
namespace {

constexpr int kPairRows = 8, kPairCols = 12;

// Adds the sums of a run to two rows and four columns of the result, times the scales if there are
// any. `left` and `right` are the accumulators of the first and the second pair of columns.
[[gnu::always_inline]] inline void add_pairs(float32x4_t left, float32x4_t right, float* upper,
                                             float* lower, const float* a_scale,
                                             const float* b_scale) {
  const float64x2_t first = vreinterpretq_f64_f32(left), second = vreinterpretq_f64_f32(right);
  const float32x4_t rows[2] = {vreinterpretq_f32_f64(vzip1q_f64(first, second)),
                               vreinterpretq_f32_f64(vzip2q_f64(first, second))};
  float* const to[2] = {upper, lower};
  for (int i = 0; i < 2; ++i) {
    const float32x4_t before = vld1q_f32(to[i]);
    vst1q_f32(to[i], a_scale == nullptr
                         ? vaddq_f32(before, rows[i])
                         : vfmaq_n_f32(before, vmulq_f32(rows[i], vld1q_f32(b_scale)), a_scale[i]));
  }
}

// Runs of a tile: `zero` begins an accumulator, `multiply` adds the products of one step, which is
// kBytes of each row, and `value` makes f32 of an accumulator.
template <int kStep, int kBytes, typename Sum, typename Zero, typename Multiply, typename Value>
[[gnu::always_inline]] inline void pairs_tile(const TileJob& job, const Zero& zero,
                                              const Multiply& multiply, const Value& value) {
  constexpr int kUp = kPairRows / 2, kAcross = kPairCols / 2;
  const std::byte *a = job.a, *b = job.b;
  // Taken out of the job, which stores to sums might change for all the compiler knows.
  const float *a_scale = job.a_scale, *b_scale = job.b_scale;
  float* const sums = job.sums;
  const std::int64_t run = job.run, runs = job.runs, pitch = job.pitch;
  for (std::int64_t r = 0; r < runs; ++r) {
    // Unrolled, because what is indexed by a variable lives in memory.
    Sum sum[kUp][kAcross];
#pragma GCC unroll 4
    for (int i = 0; i < kUp; ++i)
#pragma GCC unroll 6
      for (int j = 0; j < kAcross; ++j) sum[i][j] = zero();
    for (std::int64_t k = 0; k < run; k += kStep) {
#pragma GCC unroll 6
      for (int j = 0; j < kAcross; ++j)
#pragma GCC unroll 4
        for (int i = 0; i < kUp; ++i)
          sum[i][j] = multiply(sum[i][j], a + 2 * kBytes * i, b + 2 * kBytes * j);
      a += kPairRows * kBytes;
      b += kPairCols * kBytes;
    }
#pragma GCC unroll 4
    for (int i = 0; i < kUp; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < kAcross; j += 2) {
        float* to = sums + 2 * i * pitch + 2 * j;
        add_pairs(value(sum[i][j]), value(sum[i][j + 1]), to, to + pitch,
                  a_scale != nullptr ? a_scale + 2 * i : nullptr,
                  b_scale != nullptr ? b_scale + 2 * j : nullptr);
      }
    if (a_scale == nullptr) continue;
    a_scale += kPairRows;
    b_scale += kPairCols;
  }
}

}  // namespace
}  // namespace octavo::cpu
