// bf16 products in AMX tiles (TDPBF16PS, tiles.h). Every format of eight bits and fewer is exact in
// bf16, and so is the product of two; sums are f32, rounded to nearest even in a fixed order, and
// subnormal inputs and results are flushed to zero (docs/numerics/gemm.md).
#include <immintrin.h>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/amx/amx.h"
#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/tiles.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/avx512_vbmi.h"

namespace octavo::cpu {
namespace {

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

PanelOrder bf16_panels(const Matrix& elements) {
  if (elements.dtype == DType::bf16) return {.cols = kSide, .step = Bf16Tiles::kWord};
  const bool nibbles = elements.packed && elements.format.bits() == 4;
  if (amx_pack_codes({elements.format, PanelOf::b, nibbles, true}) == nullptr) return {};
  return {.cols = kSide, .step = nibbles ? 8 : 4};
}

const GemmMethod kBf16{.name = "bf16 AMX",
                       .packed_type = PackedType::bf16,
                       .wide = &kAvx512F32,
                       .tile = {.rows = kSide,
                                .cols = kSide,
                                .step = Bf16Tiles::kWord,
                                .run = tiles_microkernel<Bf16Tiles>,
                                .a_step = Bf16Tiles::kStep},
                       .dot = dot,
                       .interleave = interleave_words,
                       .interleave_a = interleave_lines,
                       .enter = enter_tiles,
                       .leave = leave_tiles,
                       .pack_codes = amx_pack_codes,
                       .scale_codes = true,
                       .panels = bf16_panels,
                       .multiply_codes = amx_multiply_codes,
                       .multiply_rows = kSide,
                       .multiply_run = kAmxMultiplyRun,
                       .multiply_lines = amx_multiply_lines,
                       .line_run = kAmxLineRun,
                       .dot_codes = amx_dot_codes,
                       .dot_scale_rows = true,
                       .dot_nibbles = amx_dot_nibbles};

const GemmMethod* choose(const GemmJob& job) {
  if (const GemmMethod* integers = amx_i8_method(job)) return integers;
  return is_bfloat_job(job) ? &kBf16 : avx512_gemm(job);
}

}  // namespace

const Kernels kAmxKernels = make_kernels<kAvx512VbmiIsa, choose, amx_attention>(
    "cpu/amx", "AVX-512 with VBMI, and bf16 and int8 products in AMX tiles");

}  // namespace octavo::cpu
