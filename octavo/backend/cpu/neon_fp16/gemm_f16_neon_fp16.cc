// Products with sums in f16, eight lanes to a vector: twice the rate of f32, for those who ask for
// it. The tile is 8 x 24; runs end before a sum can overflow (kF16Run), and go to f32.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm.h"
#include "octavo/backend/cpu/neon/neon_internal.h"
#include "octavo/backend/cpu/neon_fp16/half_tile.h"
#include "octavo/backend/cpu/neon_fp16/neon_fp16_internal.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC moves loads up before it hands out registers, and then runs out of them.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

constexpr int kRows = kHalfRows, kCols = kHalfCols, kVectors = kHalfVectors;

[[gnu::always_inline]] inline void add_run(float* to, float16x8_t run, const float* b_scale,
                                           float a_scale) {
  const float32x4_t low = vcvt_f32_f16(vget_low_f16(run)), high = vcvt_high_f32_f16(run);
  vst1q_f32(to, vfmaq_n_f32(vld1q_f32(to), vmulq_f32(low, vld1q_f32(b_scale)), a_scale));
  vst1q_f32(to + 4,
            vfmaq_n_f32(vld1q_f32(to + 4), vmulq_f32(high, vld1q_f32(b_scale + 4)), a_scale));
}

void tile(const TileJob& job) {
  const auto* a = reinterpret_cast<const float16_t*>(job.a);
  const auto* b = reinterpret_cast<const float16_t*>(job.b);
  // Taken out of the job, which stores to sums might change for all the compiler knows.
  const float *a_scale = job.a_scale, *b_scale = job.b_scale;
  float* const sums = job.sums;
  const std::int64_t run = job.run, runs = job.runs, pitch = job.pitch;
  for (std::int64_t r = 0; r < runs; ++r, a_scale += kRows, b_scale += kCols) {
    // Unrolled, because what is indexed by a variable lives in memory.
    float16x8_t sum[kRows][kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j) sum[i][j] = vdupq_n_f16(0);
    for (std::int64_t k = 0; k < run; ++k, a += kRows, b += kCols) half_step(a, b, sum);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 3
      for (int j = 0; j < kVectors; ++j)
        add_run(sums + i * pitch + 8 * j, sum[i][j], b_scale + 8 * j, a_scale[i]);
  }
}

// Eight sums of a run side by side, each of every eighth product; then in f32.
void dot(const DotJob& job) {
  for (int i = 0; i < job.rows; ++i) {
    const auto* a = reinterpret_cast<const float16_t*>(job.a[i]);
    for (int j = 0; j < kDotCols; ++j) {
      const auto* b = reinterpret_cast<const float16_t*>(job.b[j]);
      float& to = job.sums[i * job.pitch + j];
      for (std::int64_t r = 0; r < job.runs; ++r) {
        float16x8_t sum[2] = {vdupq_n_f16(0), vdupq_n_f16(0)};
        for (std::int64_t k = r * job.run; k < (r + 1) * job.run; k += 16)
          for (int half = 0; half < 2; ++half)
            sum[half] =
                vfmaq_f16(sum[half], vld1q_f16(a + k + 8 * half), vld1q_f16(b + k + 8 * half));
        float32x4_t run = vdupq_n_f32(0.0F);
        for (const float16x8_t& part : sum)
          run =
              vaddq_f32(run, vaddq_f32(vcvt_f32_f16(vget_low_f16(part)), vcvt_high_f32_f16(part)));
        const float scaled = vaddvq_f32(run) * job.b_scale[r * kDotCols + j];
        to = __builtin_fmaf(scaled, job.a_scale[i][r], to);
      }
    }
  }
}

}  // namespace

void neon_fp16_narrow(const float* from, std::byte* to, std::int64_t n) {
  auto* out = reinterpret_cast<float16_t*>(to);
  std::int64_t i = 0;
  for (; i + 4 <= n; i += 4) vst1_f16(out + i, vcvt_f16_f32(vld1q_f32(from + i)));
  for (; i < n; ++i) out[i] = static_cast<float16_t>(from[i]);
}

namespace {

constexpr GemmMethod kF16{.name = "f16 FMLA",
                          .lane = Lane::f16,
                          .wide = &kNeonF32,
                          .tile = {.rows = kRows, .cols = kCols, .step = 1, .run = tile},
                          .dot = dot,
                          .pack_codes = neon_fp16_pack_codes,
                          .narrow = neon_fp16_narrow};

}  // namespace

const GemmMethod* neon_fp16_gemm(const GemmJob& job) {
  if (job.accumulator != Accumulator::f16) return neon_gemm(job);
  return common_run(job) % kDotStep == 0 ? &kF16 : nullptr;
}

}  // namespace octavo::cpu
