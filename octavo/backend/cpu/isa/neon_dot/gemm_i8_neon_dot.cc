// The int8 GEMM microkernel (SDOT): products of e2m1fn and e2m3fn as integers, which are exact,
// four int8 products to a lane and instruction. Sums of a run, at most 512 * 60 * 60, are exact in
// f32 too; only adding runs rounds. MR x NR is that of f32 with four products in the place of one.
#include <arm_neon.h>

#include <cstring>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/gemm_words.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon_dot/dot_tile.h"
#include "octavo/backend/cpu/isa/neon_dot/neon_dot_internal.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

// Initial value of sums: read as f32, they are 1.5 * 2^23 plus the sum, as long as that stays below
// 2^22 (at most 512 * 60 * 60). Subtracting that is faster than a conversion, of which one starts
// per cycle.
constexpr std::int32_t kStart = 0x4B400000;
constexpr float kStartValue = 0x1.8p+23F;

[[gnu::always_inline]] inline float32x4_t value_of(int32x4_t sum) {
  return vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(kStartValue));
}

[[gnu::always_inline]] inline void add_run(float* __restrict to, int32x4_t run, float32x4_t right,
                                           float32x4_t left, int lane) {
  const float32x4_t scaled = vmulq_f32(value_of(run), right), before = vld1q_f32(to);
  vst1q_f32(to, lane == 0   ? vfmaq_laneq_f32(before, scaled, left, 0)
                : lane == 1 ? vfmaq_laneq_f32(before, scaled, left, 1)
                : lane == 2 ? vfmaq_laneq_f32(before, scaled, left, 2)
                            : vfmaq_laneq_f32(before, scaled, left, 3));
}

void tile(const MicrokernelJob& job) {
  const auto* a = reinterpret_cast<const std::int8_t*>(job.a);
  const auto* b = reinterpret_cast<const std::int8_t*>(job.b);
  // Copied out of the job: the compiler must assume that stores to sums alias it.
  const float *a_scale = job.a_scale, *b_scale = job.b_scale;
  float* const sums = job.sums;
  const std::int64_t run = job.run, runs = job.runs, pitch = job.pitch;
  for (std::int64_t r = 0; r < runs; ++r, a_scale += kRows, b_scale += kCols) {
    // Unrolled: an array indexed by a variable would live in memory instead of registers.
    int32x4_t sum[kRows][kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) sum[i][j] = vdupq_n_s32(kStart);
    for (std::int64_t k = 0; k < run; k += kStep, a += kRows * kStep, b += kCols * kStep)
      step(a, b, sum);
    const float32x4_t left[2] = {vld1q_f32(a_scale), vld1q_f32(a_scale + 4)};
#pragma GCC unroll 3
    for (int j = 0; j < kVectors; ++j) {
      const float32x4_t right = vld1q_f32(b_scale + 4 * j);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i)
        add_run(sums + i * pitch + 4 * j, sum[i][j], right, left[i / 4], i % 4);
    }
  }
}

template <int kDotted>
[[gnu::always_inline]] inline void dot_rows(const DotJob& job) {
  const std::int8_t *a[kDotted], *b[kDotCols];
  for (int i = 0; i < kDotted; ++i) a[i] = reinterpret_cast<const std::int8_t*>(job.a[i]);
  for (int j = 0; j < kDotCols; ++j) b[j] = reinterpret_cast<const std::int8_t*>(job.b[j]);
  float32x4_t total[kDotted];
#pragma GCC unroll 4
  for (int i = 0; i < kDotted; ++i) total[i] = vld1q_f32(job.sums + i * job.pitch);
  std::int64_t k = 0;
  for (std::int64_t r = 0; r < job.runs; ++r) {
    int32x4_t sum[kDotted][kDotCols] = {};
    for (const std::int64_t end = k + job.run; k < end; k += 16) {
      int8x16_t left[kDotted];
#pragma GCC unroll 4
      for (int i = 0; i < kDotted; ++i) left[i] = vld1q_s8(a[i] + k);
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) {
        const int8x16_t right = vld1q_s8(b[j] + k);
#pragma GCC unroll 4
        for (int i = 0; i < kDotted; ++i) sum[i][j] = vdotq_s32(sum[i][j], left[i], right);
      }
    }
    const float32x4_t right = vld1q_f32(job.b_scale + r * kDotCols);
#pragma GCC unroll 4
    for (int i = 0; i < kDotted; ++i) {
      // The sums of four columns in one vector.
      const int32x4_t run =
          vpaddq_s32(vpaddq_s32(sum[i][0], sum[i][1]), vpaddq_s32(sum[i][2], sum[i][3]));
      total[i] = vfmaq_n_f32(total[i], vmulq_f32(vcvtq_f32_s32(run), right), job.a_scale[i][r]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kDotted; ++i) vst1q_f32(job.sums + i * job.pitch, total[i]);
}

}  // namespace

void neon_dot_i8(const DotJob& job) {
  with_rows(job.rows, [&]<int kDotted>() { dot_rows<kDotted>(job); });
}

namespace {

constexpr GemmMethod kI8{.name = "int8 SDOT",
                         .packed_type = PackedType::i8,
                         .wide = &kNeonF32,
                         .tile = {.rows = kRows, .cols = kCols, .step = kStep, .run = tile},
                         .dot = neon_dot_i8,
                         .interleave = interleave_words,
                         .look_up = neon_dot_look_up};

}  // namespace

void neon_dot_look_up(const std::int8_t* table, const std::uint8_t* codes, std::int64_t n,
                      std::int8_t* packed) {
  const int8x16x4_t entries{
      {vld1q_s8(table), vld1q_s8(table + 16), vld1q_s8(table + 32), vld1q_s8(table + 48)}};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) vst1q_s8(packed + i, vqtbl4q_s8(entries, vld1q_u8(codes + i)));
  for (; i < n; ++i) packed[i] = table[codes[i]];
}

const GemmMethod* neon_dot_gemm(const GemmJob& job) {
  return is_integer_job(job) ? &kI8 : neon_fp16_gemm(job);
}

const Kernels kNeonDotKernels = make_kernels<kNeonFp16Isa, neon_dot_gemm, neon_dot_attention>(
    "cpu/neon_dot", "NEON with half precision and int8 dot products");

}  // namespace octavo::cpu
