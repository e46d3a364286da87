// The bf16 GEMM microkernel of AMX (TDPBF16PS): MR x NR is 32 x 32, four tiles of sums, two of A
// and two of B. Panels of A have 32 elements of K for each row, a row of a tile; panels of B have
// pairs along K side by side. Every format of eight bits and fewer is exact in bf16, and so is the
// product of two; sums are f32, rounded to nearest even in a fixed order, and subnormal inputs and
// results are flushed to zero (docs/numerics/gemm.md).
#include <immintrin.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/amx/amx.h"
#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/tiles.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/avx512_vbmi.h"

namespace octavo::cpu {
namespace {

void tile(const MicrokernelJob& job) {
  const std::byte *a = job.a, *b = job.b;
  const bool packed = job.a_pitch == 0;
  const std::int64_t a_pitch = packed ? kLine : job.a_pitch,
                     a_step = packed ? 2 * kTileBytes : kLine;
  if (job.a_scale == nullptr) {
    const std::int64_t pitch = job.pitch * static_cast<std::int64_t>(sizeof(float));
    float *const top = job.sums, *const bottom = job.sums + kHalf * job.pitch;
    _tile_loadd(0, top, pitch);
    _tile_loadd(1, top + kHalf, pitch);
    _tile_loadd(2, bottom, pitch);
    _tile_loadd(3, bottom + kHalf, pitch);
    multiply(a, a_pitch, a_step, b, job.run * job.runs);
    _tile_stored(0, top, pitch);
    _tile_stored(1, top + kHalf, pitch);
    _tile_stored(2, bottom, pitch);
    _tile_stored(3, bottom + kHalf, pitch);
    return;
  }
  alignas(64) float part[kSide][kSide];
  constexpr int kPitch = kSide * static_cast<int>(sizeof(float));
  const std::int64_t b_bytes = job.run * kSide * 2, a_bytes = job.run / kAStep * a_step;
  for (std::int64_t r = 0; r < job.runs; ++r, a += a_bytes, b += b_bytes) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    multiply(a, a_pitch, a_step, b, job.run);
    _tile_stored(0, part[0], kPitch);
    _tile_stored(1, part[0] + kHalf, kPitch);
    _tile_stored(2, part[kHalf], kPitch);
    _tile_stored(3, part[kHalf] + kHalf, kPitch);
    const float* b_scale = job.b_scale + r * kSide;
    const __m512 right[2] = {_mm512_loadu_ps(b_scale), _mm512_loadu_ps(b_scale + kHalf)};
    for (int i = 0; i < kSide; ++i) {
      const __m512 left = _mm512_set1_ps(job.a_scale[r * kSide + i]);
      for (int j = 0; j < 2; ++j) {
        float* to = job.sums + i * job.pitch + j * kHalf;
        const __m512 scaled = _mm512_mul_ps(_mm512_load_ps(part[i] + j * kHalf), right[j]);
        _mm512_storeu_ps(to, _mm512_fmadd_ps(scaled, left, _mm512_loadu_ps(to)));
      }
    }
  }
}

// bf16 rows by bf16 rows, widened to f32.
template <int kDotted>
[[gnu::always_inline]] inline void dot_rows(const DotJob& job) {
  const auto load = [](const std::byte* from, std::int64_t k) __attribute__((always_inline)) {
    const auto* at = reinterpret_cast<const __m256i*>(from + k * 2);
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(at)), 16));
  };
  std::int64_t k = 0;
  for (std::int64_t r = 0; r < job.runs; ++r) {
    __m512 sum[kDotted][kDotCols];
#pragma GCC unroll 4
    for (int i = 0; i < kDotted; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) sum[i][j] = _mm512_setzero_ps();
    for (const std::int64_t end = k + job.run; k < end; k += kDotStep) {
      __m512 left[kDotted];
#pragma GCC unroll 4
      for (int i = 0; i < kDotted; ++i) left[i] = load(job.a[i], k);
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) {
        const __m512 right = load(job.b[j], k);
#pragma GCC unroll 4
        for (int i = 0; i < kDotted; ++i) sum[i][j] = _mm512_fmadd_ps(left[i], right, sum[i][j]);
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kDotted; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kDotCols; ++j) {
        const float part = _mm512_reduce_add_ps(sum[i][j]);
        float& to = job.sums[i * job.pitch + j];
        to += job.b_scale == nullptr ? part
                                     : part * job.b_scale[r * kDotCols + j] * job.a_scale[i][r];
      }
  }
}

void dot(const DotJob& job) {
  with_rows(job.rows, [&]<int kDotted>() { dot_rows<kDotted>(job); });
}

const GemmMethod kBf16{
    .name = "bf16 AMX",
    .packed_type = PackedType::bf16,
    .wide = &kAvx512F32,
    .tile = {.rows = kSide, .cols = kSide, .step = kBStep, .run = tile, .a_step = kAStep},
    .dot = dot,
    .interleave = interleave_pairs,
    .interleave_a = interleave_lines,
    .enter = enter_tiles,
    .leave = leave_tiles,
    .dot_codes = amx_dot_codes};

const GemmMethod* choose(const GemmJob& job) {
  return is_bfloat_job(job) ? &kBf16 : avx512_gemm(job);
}

}  // namespace

const Kernels kAmxKernels = make_kernels<kAvx512VbmiIsa, choose, amx_attention>(
    "cpu/amx", "AVX-512 with VBMI, and bf16 products in AMX tiles");

}  // namespace octavo::cpu
