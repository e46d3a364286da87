// The f32 GEMM microkernel (NEON FMLA) and dot kernel. MR x NR is 8 x 12: 24 accumulators, 2
// vectors of A and 3 of B are 29 of the 32 registers, and every 24 multiply-adds need 5 loads.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/gemm_words.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

constexpr int kRows = 8, kCols = 12, kVectors = kCols / 4;
// Prefetch distance of packed panels of B, which come from L2, in K steps.
constexpr int kAhead = 32;

template <int kRow>
[[gnu::always_inline]] inline float32x4_t plus_product(float32x4_t sum, float32x4_t b,
                                                       float32x4_t a_low, float32x4_t a_high) {
  return vfmaq_laneq_f32(sum, b, kRow < 4 ? a_low : a_high, kRow % 4);
}

[[gnu::always_inline]] inline void step(const float* a, const float* b,
                                        float32x4_t (&sum)[kRows][kVectors]) {
  const float32x4_t low = vld1q_f32(a), high = vld1q_f32(a + 4);
#pragma GCC unroll 3
  for (int j = 0; j < kVectors; ++j) {
    const float32x4_t right = vld1q_f32(b + 4 * j);
    sum[0][j] = plus_product<0>(sum[0][j], right, low, high);
    sum[1][j] = plus_product<1>(sum[1][j], right, low, high);
    sum[2][j] = plus_product<2>(sum[2][j], right, low, high);
    sum[3][j] = plus_product<3>(sum[3][j], right, low, high);
    sum[4][j] = plus_product<4>(sum[4][j], right, low, high);
    sum[5][j] = plus_product<5>(sum[5][j], right, low, high);
    sum[6][j] = plus_product<6>(sum[6][j], right, low, high);
    sum[7][j] = plus_product<7>(sum[7][j], right, low, high);
  }
}

}  // namespace

void neon_f32_tile(const MicrokernelJob& job) {
  const auto* a = reinterpret_cast<const float*>(job.a);
  const auto* b = reinterpret_cast<const float*>(job.b);
  const bool scaled = job.a_scale == nullptr;
  // Prefetches the sums of the next tile, to the right of these, one or two cache lines of each
  // row.
  for (int i = 0; i < kRows; ++i) {
    __builtin_prefetch(job.sums + i * job.pitch + kCols, 1);
    __builtin_prefetch(job.sums + i * job.pitch + 2 * kCols - 1, 1);
  }
  for (std::int64_t r = 0; r < job.runs; ++r) {
    // Unrolled: an array indexed by a variable would live in memory instead of registers.
    float32x4_t sum[kRows][kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j)
        sum[i][j] = scaled ? vld1q_f32(job.sums + i * job.pitch + 4 * j) : vdupq_n_f32(0.0F);
#pragma GCC unroll 2
    for (std::int64_t k = 0; k < job.run; ++k, a += kRows, b += kCols) {
      __builtin_prefetch(b + kAhead * kCols);
      step(a, b, sum);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) {
        float* to = job.sums + i * job.pitch + 4 * j;
        if (!scaled) {
          const float32x4_t right = vld1q_f32(job.b_scale + r * kCols + 4 * j);
          sum[i][j] =
              vfmaq_n_f32(vld1q_f32(to), vmulq_f32(sum[i][j], right), job.a_scale[r * kRows + i]);
        }
        vst1q_f32(to, sum[i][j]);
      }
    }
  }
}

namespace {

// Sixteen accumulators whatever the number of rows: with fewer rows K-unrolling gives separate
// accumulators.
template <int kDotted>
[[gnu::always_inline]] inline void dot_rows(const DotJob& job) {
  constexpr int kChains = kDotted == 3 ? 1 : kDotRows / kDotted;
  const float *a[kDotted], *b[kDotCols];
  for (int i = 0; i < kDotted; ++i) a[i] = reinterpret_cast<const float*>(job.a[i]);
  for (int j = 0; j < kDotCols; ++j) b[j] = reinterpret_cast<const float*>(job.b[j]);
  std::int64_t k = 0;
  for (std::int64_t r = 0; r < job.runs; ++r) {
    float32x4_t sum[kDotted][kDotCols][kChains] = {};
    for (const std::int64_t end = k + job.run; k < end; k += 4 * kChains) {
#pragma GCC unroll 4
      for (int c = 0; c < kChains; ++c) {
        float32x4_t left[kDotted];
#pragma GCC unroll 4
        for (int i = 0; i < kDotted; ++i) left[i] = vld1q_f32(a[i] + k + 4 * c);
#pragma GCC unroll 4
        for (int j = 0; j < kDotCols; ++j) {
          const float32x4_t right = vld1q_f32(b[j] + k + 4 * c);
#pragma GCC unroll 4
          for (int i = 0; i < kDotted; ++i) sum[i][j][c] = vfmaq_f32(sum[i][j][c], left[i], right);
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kDotted; ++i) {
      float32x4_t part[kDotCols];
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) {
        part[j] = sum[i][j][0];
#pragma GCC unroll 4
        for (int c = 1; c < kChains; ++c) part[j] = vaddq_f32(part[j], sum[i][j][c]);
      }
      // The sums of four columns in one vector.
      const float32x4_t run =
          vpaddq_f32(vpaddq_f32(part[0], part[1]), vpaddq_f32(part[2], part[3]));
      float* to = job.sums + i * job.pitch;
      const float32x4_t before = vld1q_f32(to);
      if (job.b_scale == nullptr) {
        vst1q_f32(to, vaddq_f32(before, run));
      } else {
        const float32x4_t right = vld1q_f32(job.b_scale + r * kDotCols);
        vst1q_f32(to, vfmaq_n_f32(before, vmulq_f32(run, right), job.a_scale[i][r]));
      }
    }
  }
}

void dot(const DotJob& job) {
  with_rows(job.rows, [&]<int kDotted>() { dot_rows<kDotted>(job); });
}

}  // namespace

constinit const GemmMethod kNeonF32{
    .name = "f32 FMLA",
    .packed_type = PackedType::f32,
    .tile = {.rows = kRows, .cols = kCols, .step = 1, .run = neon_f32_tile},
    .dot = dot,
    .interleave = interleave_words,
    .pack_codes = neon_pack_codes,
    .dot_codes = neon_dot_codes};

void neon_interleave_words(const std::byte* const* rows, int count, std::int64_t words,
                           std::byte* panel) {
  interleave_words(rows, count, words, panel);
}

const GemmMethod* neon_gemm(const GemmJob& job) {
  return job.accumulator == Accumulator::f32 ? &kNeonF32 : nullptr;
}

}  // namespace octavo::cpu
