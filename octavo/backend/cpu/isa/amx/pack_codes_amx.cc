// Codes to panels of bf16 for AMX tiles: of B as pack_columns.h says; of A in lines of 32 elements
// of each row, without transposing.
#include <immintrin.h>

#include <bit>

#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/pack_columns.h"
#include "octavo/base/fp_env.h"

namespace octavo::cpu {
namespace {

template <typename Columns, bool kScaled, CodesIn kIn>
[[gnu::noinline]] void pack_b(const Columns& given, const PackJob& job) {
  const FpEnvGuard guard;
  const Columns columns = given;  // in registers: what is stored may not be it
  for (int half = 0; half < kPanelCols; half += kPanelHalf) {
    ScaleColumns scales(job, Columns::kLift);
    pack_columns<kScaled, kIn>(job, half, 0, job.n, columns, scales, job.panel);
  }
}

// Lines of 32 elements of each row. `decode(row, k, lines)` gives two lines.
template <bool kScaled, typename Decode>
[[gnu::always_inline]] inline void pack_lines(const PackJob& job, const Decode& decode) {
  const FpEnvGuard guard;
  const int shift = std::countr_zero(static_cast<std::uint64_t>(job.run));
  for (int row = 0; row < job.count; ++row) {
    const float* scales = kScaled ? job.scales + row * (job.n >> shift) : nullptr;
    std::byte* to = job.panel + row * 64;
    for (std::int64_t k = 0; k < job.n; k += 64) {
      __m512i lines[2];
      decode(job.rows[row], k, lines);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        if (k + 32 * i >= job.n) break;
        if constexpr (kScaled) {
          const std::int64_t first = k + 32 * i, second = first + 16;
          const __m512 upper = _mm512_set1_ps(scales[second >> shift]);
          lines[i] = times(lines[i], _mm512_mask_blend_ps(
                                         0xFF00, _mm512_set1_ps(scales[first >> shift]), upper));
        }
        _mm512_storeu_si512(to, lines[i]);
        to += job.count * 64;
      }
    }
  }
}

template <const Format& kFormat, bool kScaled>
void pack_a(const PackJob& job) {
  const Planes<Bfloat, kFormat> planes;
  pack_lines<kScaled>(
      job, [&](const std::uint8_t* row, std::int64_t k, __m512i(&lines)[2])
               __attribute__((always_inline)) {
                 const __mmask16 there = job.n - k >= 64 ? 0xFFFF : 0xFF;
                 planes(_mm512_maskz_loadu_epi32(there, row + k), lines);
               });
}

template <const Format& kFormat, bool kScaled>
void pack_a_nibbles(const PackJob& job) {
  const __m512i table = _mm512_load_si512(kPairTable<kFormat>.at);
  pack_lines<kScaled>(
      job, [&](const std::uint8_t* row, std::int64_t k,
               __m512i(&lines)[2]) __attribute__((always_inline)) {
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          if (k + 32 * i >= job.n) break;
          const auto* from = reinterpret_cast<const __m128i*>(row + k / 2 + 16 * i);
          const __m512i two = _mm512_cvtepu8_epi32(_mm_loadu_si128(from));
          lines[i] =
              _mm512_permutexvar_epi16(_mm512_or_si512(two, _mm512_slli_epi32(two, 12)), table);
        }
      });
}

template <const Format& kFormat, typename Columns, CodesIn kIn>
void pack_b_codes(const Format&, const PackJob& job) {
  const Columns columns = Columns::template of<kFormat>();
  return job.is_scaled() ? pack_b<Columns, true, kIn>(columns, job)
                         : pack_b<Columns, false, kIn>(columns, job);
}
template <const Format& kFormat, typename Columns>
PackCodes columns_of(bool in_panels) {
  return in_panels ? pack_b_codes<kFormat, Columns, CodesIn::panels>
                   : pack_b_codes<kFormat, Columns, CodesIn::rows>;
}

template <const Format& kFormat>
PackCodes bytes_of(const PackedCodes& codes) {
  if (codes.side == PanelOf::b)
    return columns_of<kFormat, ByteColumns<kFormat.bits() == 8>>(codes.in_panels);
  return [](const Format&, const PackJob& job) {
    return job.scales != nullptr ? pack_a<kFormat, true>(job) : pack_a<kFormat, false>(job);
  };
}

template <const Format& kFormat>
PackCodes nibbles_of(const PackedCodes& codes) {
  if (codes.side == PanelOf::b) return columns_of<kFormat, NibbleColumns>(codes.in_panels);
  return [](const Format&, const PackJob& job) {
    return job.scales != nullptr ? pack_a_nibbles<kFormat, true>(job)
                                 : pack_a_nibbles<kFormat, false>(job);
  };
}

}  // namespace

PackCodes amx_pack_codes(const PackedCodes& codes) {
  const Format& format = codes.format;
  if (codes.nibbles) return format == e2m1fn ? nibbles_of<e2m1fn>(codes) : nullptr;
  if (format == e4m3fn) return bytes_of<e4m3fn>(codes);
  if (format == e5m2) return bytes_of<e5m2>(codes);
  if (format == e2m1fn) return bytes_of<e2m1fn>(codes);
  if (format == e2m3fn) return bytes_of<e2m3fn>(codes);
  if (format == e3m2fn) return bytes_of<e3m2fn>(codes);
  return nullptr;
}

}  // namespace octavo::cpu
