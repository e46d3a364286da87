// Microkernel tiles of matrix instructions (BFMMLA, SMMLA), which multiply two rows by two columns
// at a time: a packed panel of A holds pairs of rows, one of B pairs of columns, and an accumulator
// is [row 0 | row 1] x [col 0, col 1]. GEMM and attention differ in the epilogue of the sums.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm.h"

namespace octavo::cpu {
namespace {

constexpr int kPairRows = 8, kPairCols = 12;
constexpr int kPairsUp = kPairRows / 2, kPairsAcross = kPairCols / 2;

// Adds the products of a run of panels: `multiply` adds those of one step, which is kBytes of each
// row.
template <int kStep, int kBytes, typename Sum, typename Multiply>
[[gnu::always_inline]] inline void add_pairs_run(const std::byte* a, const std::byte* b,
                                                 std::int64_t run,
                                                 Sum (&sum)[kPairsUp][kPairsAcross],
                                                 const Multiply& multiply) {
  for (std::int64_t k = 0; k < run; k += kStep) {
#pragma GCC unroll 6
    for (int j = 0; j < kPairsAcross; ++j)
#pragma GCC unroll 4
      for (int i = 0; i < kPairsUp; ++i)
        sum[i][j] = multiply(sum[i][j], a + 2 * kBytes * i, b + 2 * kBytes * j);
    a += kPairRows * kBytes;
    b += kPairCols * kBytes;
  }
}

// Calls one(row, col, sums) for each row of the tile and each four columns; `value` converts an
// accumulator to f32.
template <typename Sum, typename Value, typename One>
[[gnu::always_inline]] inline void for_pair_rows(const Sum (&sum)[kPairsUp][kPairsAcross],
                                                 const Value& value, const One& one) {
#pragma GCC unroll 4
  for (int i = 0; i < kPairsUp; ++i)
#pragma GCC unroll 3
    for (int j = 0; j < kPairsAcross; j += 2) {
      const float64x2_t left = vreinterpretq_f64_f32(value(sum[i][j])),
                        right = vreinterpretq_f64_f32(value(sum[i][j + 1]));
      one(2 * i, 2 * j, vreinterpretq_f32_f64(vzip1q_f64(left, right)));
      one(2 * i + 1, 2 * j, vreinterpretq_f32_f64(vzip2q_f64(left, right)));
    }
}

// All runs of a tile, times their scales if there are any; `zero` initializes an accumulator.
template <int kStep, int kBytes, typename Sum, typename Zero, typename Multiply, typename Value>
[[gnu::always_inline]] inline void pairs_tile(const MicrokernelJob& job, const Zero& zero,
                                              const Multiply& multiply, const Value& value) {
  const std::byte *a = job.a, *b = job.b;
  // Copied out of the job: the compiler must assume that stores to sums alias it.
  const float *a_scale = job.a_scale, *b_scale = job.b_scale;
  float* const sums = job.sums;
  const std::int64_t run = job.run, runs = job.runs, pitch = job.pitch;
  for (std::int64_t r = 0; r < runs; ++r) {
    // Unrolled: an array indexed by a variable would live in memory instead of registers.
    Sum sum[kPairsUp][kPairsAcross];
#pragma GCC unroll 4
    for (int i = 0; i < kPairsUp; ++i)
#pragma GCC unroll 6
      for (int j = 0; j < kPairsAcross; ++j) sum[i][j] = zero();
    add_pairs_run<kStep, kBytes>(a, b, run, sum, multiply);
    a += run / kStep * kPairRows * kBytes;
    b += run / kStep * kPairCols * kBytes;
    for_pair_rows(sum, value, [&](int row, int col, float32x4_t four) {
      float* to = sums + row * pitch + col;
      const float32x4_t before = vld1q_f32(to);
      vst1q_f32(to,
                a_scale == nullptr
                    ? vaddq_f32(before, four)
                    : vfmaq_n_f32(before, vmulq_f32(four, vld1q_f32(b_scale + col)), a_scale[row]));
    });
    if (a_scale == nullptr) continue;
    a_scale += kPairRows;
    b_scale += kPairCols;
  }
}

[[gnu::always_inline]] inline float32x4_t one_of(float32x4_t four, int lane) {
  return lane == 0   ? vdupq_laneq_f32(four, 0)
         : lane == 1 ? vdupq_laneq_f32(four, 1)
         : lane == 2 ? vdupq_laneq_f32(four, 2)
                     : vdupq_laneq_f32(four, 3);
}

// Scores of attention, [8 keys][12 queries]: stored, times the units of both.
template <typename Sum, typename Value>
[[gnu::always_inline]] inline void write_pair_scores(const MicrokernelJob& job,
                                                     const Sum (&sum)[kPairsUp][kPairsAcross],
                                                     const Value& value) {
  // Loaded before any store: the compiler must assume that stores alias them.
  const float32x4_t across[3] = {vld1q_f32(job.b_scale), vld1q_f32(job.b_scale + 4),
                                 vld1q_f32(job.b_scale + 8)},
                    up[2] = {vld1q_f32(job.a_scale), vld1q_f32(job.a_scale + 4)};
  float* const sums = job.sums;
  const std::int64_t pitch = job.pitch;
  for_pair_rows(sum, value, [&](int row, int col, float32x4_t four) {
    const float32x4_t units = vmulq_f32(across[col / 4], one_of(up[row / 4], row % 4));
    vst1q_f32(sums + row * pitch + col, vmulq_f32(four, units));
  });
}

}  // namespace
}  // namespace octavo::cpu
