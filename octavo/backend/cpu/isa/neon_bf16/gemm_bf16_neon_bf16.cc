// The bf16 GEMM microkernel (BFMMLA): sixteen products to an instruction. Every format of eight
// bits and fewer is exact in bf16, and so is the product of two; sums are f32, rounded to odd by
// the instruction, which flushes subnormal inputs and results to zero (docs/numerics/gemm.md).
#include <arm_neon.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon/gemm_pairs.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon_bf16/bf16_lanes.h"
#include "octavo/backend/cpu/isa/neon_bf16/bfmmla_run.h"
#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16_internal.h"

#if defined(__GNUC__) && !defined(__clang__)
// GCC hoists loads before register allocation and then spills: no scheduling in this file.
#pragma GCC optimize("no-schedule-insns")
#endif

namespace octavo::cpu {

void neon_bf16_tile(const MicrokernelJob& job) {
  const std::byte *a = job.a, *b = job.b;
  const float *a_scale = job.a_scale, *b_scale = job.b_scale;
  const std::int64_t steps = job.run / kBf16Step, runs = job.runs, pitch = job.pitch;
  float* const sums = job.sums;
  bool overwrites = job.overwrites;
  // The sums are far from L1 where there are several blocks of K.
  if (!overwrites)
    for (int row = 0; row < kPairRows; ++row) __builtin_prefetch(sums + row * pitch, 1);
  for (std::int64_t r = 0; r < runs; ++r) {
    alignas(64) float32x4_t sum[kPairsUp][kPairsAcross];
    bfmmla_run(a, b, steps, reinterpret_cast<float*>(sum));
    a += steps * kPairRows * kBf16StepBytes;
    b += steps * kPairCols * kBf16StepBytes;
    for_pair_rows(
        sum, [](float32x4_t one) { return one; },
        [&](int row, int col, float32x4_t four) __attribute__((always_inline)) {
          float* to = sums + row * pitch + col;
          const float32x4_t before = overwrites ? vdupq_n_f32(0.0F) : vld1q_f32(to);
          if (a_scale == nullptr) return vst1q_f32(to, overwrites ? four : vaddq_f32(before, four));
          four = vmulq_f32(four, vld1q_f32(b_scale + col));
          vst1q_f32(to, vfmaq_n_f32(before, four, a_scale[row]));
        });
    overwrites = false;
    if (a_scale == nullptr) continue;
    a_scale += kPairRows;
    b_scale += kPairCols;
  }
}

void neon_bf16_tile_compiled(const MicrokernelJob& job) {
  pairs_tile<kBf16Step, kBf16StepBytes, float32x4_t>(
      job, [] { return vdupq_n_f32(0.0F); }, plus_bf16_pairs, [](float32x4_t sum) { return sum; });
}

namespace {

// Words of four elements of pairs of rows: what one BFMMLA reads.
void interleave(const std::byte* const* rows, int count, std::int64_t words, std::byte* panel) {
  constexpr std::int64_t kWord = kBf16StepBytes;
  const auto* const* from = reinterpret_cast<const std::uint8_t* const*>(rows);
  auto* to = reinterpret_cast<std::uint64_t*>(panel);
  std::int64_t w = 0;
  for (; w + 2 <= words; w += 2, to += 2 * count)
    for (int r = 0; r < count; r += 2) {
      const uint64x2_t even = vreinterpretq_u64_u8(vld1q_u8(from[r] + w * kWord)),
                       odd = vreinterpretq_u64_u8(vld1q_u8(from[r + 1] + w * kWord));
      vst1q_u64(to + r, vzip1q_u64(even, odd));
      vst1q_u64(to + count + r, vzip2q_u64(even, odd));
    }
  if (w < words)
    for (int r = 0; r < count; ++r)
      vst1_u64(to + r, vreinterpret_u64_u8(vld1_u8(from[r] + w * kWord)));
}

template <int kDotted>
[[gnu::always_inline]] inline void dot_rows(const DotJob& job) {
  constexpr std::int64_t kLanes = 8, kPackedBytes = 2;
  std::int64_t k = 0;
  for (std::int64_t r = 0; r < job.runs; ++r) {
    float32x4_t sum[kDotted][kDotCols] = {};
    for (const std::int64_t end = k + job.run; k < end; k += kLanes) {
      bfloat16x8_t left[kDotted];
#pragma GCC unroll 4
      for (int i = 0; i < kDotted; ++i) left[i] = load_bf16(job.a[i] + k * kPackedBytes);
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) {
        const bfloat16x8_t right = load_bf16(job.b[j] + k * kPackedBytes);
#pragma GCC unroll 4
        for (int i = 0; i < kDotted; ++i) sum[i][j] = vbfdotq_f32(sum[i][j], left[i], right);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kDotted; ++i) {
      // The sums of four columns in one vector.
      const float32x4_t run =
          vpaddq_f32(vpaddq_f32(sum[i][0], sum[i][1]), vpaddq_f32(sum[i][2], sum[i][3]));
      float* to = job.sums + i * job.pitch;
      const float32x4_t before = vld1q_f32(to);
      vst1q_f32(to, job.b_scale == nullptr
                        ? vaddq_f32(before, run)
                        : vfmaq_n_f32(before, vmulq_f32(run, vld1q_f32(job.b_scale + r * kDotCols)),
                                      job.a_scale[i][r]));
    }
  }
}

void dot(const DotJob& job) {
  with_rows(job.rows, [&]<int kDotted>() { dot_rows<kDotted>(job); });
}

// Panels of 8 and 12 rows of bf16 of this depth are five sixths of an L1 of 64 KiB.
constexpr std::int64_t kBf16Kc = 1344;

PanelOrder panels(const Matrix& elements) {
  const bool nibbles = elements.packed && elements.format.bits() == 4;
  if (elements.dtype != DType::bf16 &&
      neon_bf16_unpack_codes({elements.format, PanelOf::b, nibbles, true}) == nullptr)
    return {};
  return {.cols = kPairCols, .step = nibbles ? 2 * kBf16Step : kBf16Step, .halves = nibbles};
}

constexpr GemmMethod kBf16{
    .name = "bf16 BFMMLA",
    .packed_type = PackedType::bf16,
    .wide = &kNeonF32,
    .tile = {.rows = kPairRows, .cols = kPairCols, .step = kBf16Step, .run = neon_bf16_tile},
    .dot = dot,
    .interleave = interleave,
    .kc = kBf16Kc,
    .pack_codes = neon_bf16_unpack_codes,
    .scale_codes = true,
    .panels = panels,
    .multiply_codes = neon_bf16_multiply_codes,
    .multiply_rows = 1,
    .dot_codes = neon_bf16_dot_codes};

}  // namespace

const GemmMethod* neon_bf16_method(const GemmJob& job) {
  return is_bfloat_job(job) ? &kBf16 : nullptr;
}

const GemmMethod* neon_bf16_gemm(const GemmJob& job) {
  const GemmMethod* method = neon_bf16_method(job);
  const bool integers = is_integer_job(job) && !reads_panels(kBf16, job.b);
  return method != nullptr && !integers ? method : neon_dot_gemm(job);
}

const Kernels kNeonBf16Kernels = make_kernels<kNeonFp16Isa, neon_bf16_gemm, neon_bf16_attention>(
    "cpu/neon_bf16", "NEON with bf16 matrix products (BFMMLA)");

}  // namespace octavo::cpu
