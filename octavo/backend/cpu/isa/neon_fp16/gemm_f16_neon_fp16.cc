// The f16 GEMM microkernel (half-precision FMLA), sums in f16, eight lanes to a vector: twice the
// rate of f32, for Accumulator::f16. MR x NR is 8 x 24; runs end before a sum can overflow
// (kF16Run), and are promoted to f32.
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon_fp16/half_tile.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {
namespace {

constexpr int kRows = kHalfRows, kCols = kHalfCols, kVectors = kHalfVectors;

// A run of one row of the tile, times the scales of the columns and of the row.
template <int kRow>
[[gnu::always_inline]] inline void add_run(float* to, float16x8_t run, const float32x4_t (&b)[2],
                                           const float32x4_t (&a)[2]) {
  const float32x4_t low = vmulq_f32(vcvt_f32_f16(vget_low_f16(run)), b[0]),
                    high = vmulq_f32(vcvt_high_f32_f16(run), b[1]);
  vst1q_f32(to, vfmaq_laneq_f32(vld1q_f32(to), low, a[kRow / 4], kRow % 4));
  vst1q_f32(to + 4, vfmaq_laneq_f32(vld1q_f32(to + 4), high, a[kRow / 4], kRow % 4));
}

// All rows of eight columns, whose scales are loaded once.
template <int kVector>
[[gnu::always_inline]] inline void add_column(float* sums, std::int64_t pitch,
                                              const float16x8_t (&sum)[kRows][kVectors],
                                              const float* b_scale, const float32x4_t (&a)[2]) {
  const float32x4_t b[2] = {vld1q_f32(b_scale + 8 * kVector), vld1q_f32(b_scale + 8 * kVector + 4)};
  float* const to = sums + 8 * kVector;
  add_run<0>(to, sum[0][kVector], b, a);
  add_run<1>(to + pitch, sum[1][kVector], b, a);
  add_run<2>(to + 2 * pitch, sum[2][kVector], b, a);
  add_run<3>(to + 3 * pitch, sum[3][kVector], b, a);
  add_run<4>(to + 4 * pitch, sum[4][kVector], b, a);
  add_run<5>(to + 5 * pitch, sum[5][kVector], b, a);
  add_run<6>(to + 6 * pitch, sum[6][kVector], b, a);
  add_run<7>(to + 7 * pitch, sum[7][kVector], b, a);
}

void tile(const MicrokernelJob& job) {
  const auto* a = reinterpret_cast<const float16_t*>(job.a);
  const auto* b = reinterpret_cast<const float16_t*>(job.b);
  // Copied out of the job: the compiler must assume that stores to sums alias it.
  const float *a_scale = job.a_scale, *b_scale = job.b_scale;
  float* const sums = job.sums;
  const std::int64_t run = job.run, runs = job.runs, pitch = job.pitch;
  for (std::int64_t r = 0; r < runs; ++r, a_scale += kRows, b_scale += kCols) {
    float16x8_t sum[kRows][kVectors];
    half_start(a, b, sum);
    a += kRows;
    b += kCols;
    for (std::int64_t k = 1; k < run; ++k, a += kRows, b += kCols) half_step(a, b, sum);
    const float32x4_t a_scales[2] = {vld1q_f32(a_scale), vld1q_f32(a_scale + 4)};
    add_column<0>(sums, pitch, sum, b_scale, a_scales);
    add_column<1>(sums, pitch, sum, b_scale, a_scales);
    add_column<2>(sums, pitch, sum, b_scale, a_scales);
  }
}

// Eight sums of a run in vector lanes, each of every eighth product; then in f32.
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
                          .packed_type = PackedType::f16,
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
