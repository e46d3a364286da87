// GEMM in f32.
#include "octavo/backend/cpu/isa/avx2/gemm_f32_kernel.h"
#include "octavo/backend/cpu/isa/avx2/gemm_pack_kernel.h"
#include "octavo/backend/cpu/isa/avx2/gemm_small_m_kernel.h"
#include "octavo/backend/cpu/isa/avx2/gemv_kernel.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"
#include "octavo/backend/cpu/isa/avx512/lanes_avx512.h"
#include "octavo/backend/cpu/isa/avx512/transpose16.h"

namespace octavo::cpu {

void avx512_f32_tile(const MicrokernelJob& job) { f32_tile<Avx512Lanes, kAvx512Rows>(job); }

// Words of `count` rows, sixteen by sixteen: panels of 12, 32 and 48 rows.
void avx512_interleave(const std::byte* const* rows, int count, std::int64_t words,
                       std::byte* panel) {
  for (std::int64_t w = 0; w < words; w += 16) {
    const std::int64_t left = words - w;
    const __mmask16 there = left >= 16 ? 0xFFFF : static_cast<__mmask16>((1U << left) - 1);
    for (int first = 0; first < count; first += 16) {
      const int some = count - first < 16 ? count - first : 16;
      const auto stored = static_cast<__mmask16>((1U << some) - 1);
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        r[i] = _mm512_maskz_loadu_epi32(there, rows[first + (i < some ? i : 0)] + w * 4);
      transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        if (i < left) _mm512_mask_storeu_epi32(panel + ((w + i) * count + first) * 4, stored, r[i]);
    }
  }
}

namespace {

// A panel of A of this depth takes 18 KiB of L1, one of B 48 KiB of L2's bandwidth.
constexpr std::int64_t kKc = 384;
constexpr Microkernel kTile{
    .rows = kAvx512Rows, .cols = kAvx512Cols, .step = 1, .run = avx512_f32_tile};
constexpr GemmMethod kSmallMCodes = small_m_method<Avx512Lanes>();
}  // namespace

constinit const GemmMethod kAvx512F32{.name = "f32 FMA",
                                      .packed_type = PackedType::f32,
                                      .tile = kTile,
                                      .dot = f32_dot<Avx512Lanes>,
                                      .small_m = &kSmallMCodes,
                                      .interleave = avx512_interleave,
                                      .kc = kKc,
                                      .sums_in_place = true,
                                      .pack_codes = choose_pack_codes<Avx512Lanes>,
                                      .dot_codes = choose_dot_codes<Avx512Lanes>};

const GemmMethod* avx512_gemm(const GemmJob& job) {
  return job.accumulator == Accumulator::f32 ? &kAvx512F32 : nullptr;
}

}  // namespace octavo::cpu
