// Integer products in AMX tiles (TDPBSSD, tiles.h): int8, e2m3 and e2m1 with scales that do not
// change along K. Sums are exact in 32 bits, rounded once to f32, and scaled. Scales of blocks
// along K would cost a conversion of all sums for each: those go to bf16 tiles, where they are
// exact too.
#include <immintrin.h>

#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/tiles.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"

namespace octavo::cpu {
namespace {

// 2^31 / 128^2: sums of fewer products fit.
constexpr std::int64_t kMaxDepth = 1 << 17;

void look_up(const std::int8_t* table, const std::uint8_t* codes, std::int64_t n,
             std::int8_t* packed) {
  const __m512i values = _mm512_loadu_si512(table);
  for (std::int64_t i = 0; i < n; i += 64) {
    const __mmask64 there = n - i >= 64 ? ~0ULL : (1ULL << (n - i)) - 1;
    const __m512i found =
        _mm512_permutexvar_epi8(_mm512_maskz_loadu_epi8(there, codes + i), values);
    _mm512_mask_storeu_epi8(packed + i, there, found);
  }
}

const GemmMethod kI8{.name = "int8 AMX",
                     .packed_type = PackedType::i8,
                     .wide = &kAvx512F32,
                     .tile = {.rows = kSide,
                              .cols = kSide,
                              .step = I8Tiles::kWord,
                              .run = tiles_microkernel<I8Tiles>,
                              .a_step = I8Tiles::kStep},
                     .interleave = interleave_words,
                     .interleave_a = interleave_lines,
                     .enter = enter_tiles,
                     .leave = leave_tiles,
                     .panels = [](const Matrix& elements) -> PanelOrder {
                       if (elements.packed) return {};
                       return {.cols = kSide, .step = I8Tiles::kWord};
                     },
                     .look_up = look_up};

}  // namespace

const GemmMethod* amx_i8_method(const GemmJob& job) {
  const bool fits = is_integer_job(job) && !scales_change(job.a) && !scales_change(job.b) &&
                    job.a.cols() < kMaxDepth;
  return fits && (job.out.rows > kDotRows || reads_panels(kI8, job.b)) ? &kI8 : nullptr;
}

}  // namespace octavo::cpu
