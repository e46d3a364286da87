// Byte planes: the high and the low bytes of 64 16-bit results are looked up separately in tables
// of 128 bytes, two registers each (VPERMI2B), and interleaved. NaN, Inf and subnormals are entries
// like all others. Tables are in registers: no address depends on data.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"

namespace octavo::cpu {
namespace {

struct Bfloat {
  static constexpr Format kFormat = bf16_format;
  static constexpr std::uint16_t kInf = 0x7F80, kNan = 0x7FC0;
};
struct Half {
  static constexpr Format kFormat = f16_format;
  static constexpr std::uint16_t kInf = 0x7C00, kNan = 0x7E00;
};

// Results of the codes 0 to 127. The sign of an eight-bit code is put back afterwards; narrower
// codes have theirs in the index.
template <typename Target, const Format& kFormat>
struct Table {
  alignas(64) std::uint8_t low[128]{}, high[128]{};

  constexpr Table() {
    for (std::uint32_t i = 0; i < 128; ++i) {
      const std::uint32_t code = i & kFormat.code_mask();
      const std::uint32_t field = code & kFormat.magnitude_mask();
      std::uint32_t bits = is_nan(kFormat, field) ? Target::kNan
                           : is_inf(kFormat, field)
                               ? Target::kInf
                               : encode_value(Target::kFormat, decode(kFormat, field)).code;
      if (kFormat.bits() < 8 && (code & kFormat.sign_mask()) != 0) bits |= 0x8000u;
      low[i] = static_cast<std::uint8_t>(bits);
      high[i] = static_cast<std::uint8_t>(bits >> 8);
    }
  }
};
template <typename Target, const Format& kFormat>
constexpr Table<Target, kFormat> kTable;

// The planes of codes of eight bits, or of fewer, whatever their format.
template <bool kEightBits>
struct BytePlanes {
  __m512i low[2], high[2];

  BytePlanes(const std::uint8_t* lows, const std::uint8_t* highs) {
    for (int i = 0; i < 2; ++i) {
      low[i] = _mm512_load_si512(lows + 64 * i);
      high[i] = _mm512_load_si512(highs + 64 * i);
    }
  }
  // The results of 64 codes, in order: 32 words in each vector.
  [[gnu::always_inline]] void operator()(__m512i codes, __m512i (&words)[2]) const {
    // Interleaving takes the lower halves of 128-bit lanes, then the upper ones.
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    in_lanes(_mm512_permutexvar_epi64(order, codes), words);
  }
  // The same without putting them in order: the lower, then the upper eight of each 128-bit lane.
  [[gnu::always_inline]] void in_lanes(__m512i at, __m512i (&words)[2]) const {
    const __m512i lows = _mm512_permutex2var_epi8(low[0], at, low[1]);
    __m512i highs = _mm512_permutex2var_epi8(high[0], at, high[1]);
    if constexpr (kEightBits)
      highs = _mm512_or_si512(highs, _mm512_and_si512(at, _mm512_set1_epi8(-128)));
    words[0] = _mm512_unpacklo_epi8(lows, highs);
    words[1] = _mm512_unpackhi_epi8(lows, highs);
  }
};
template <typename Target, const Format& kFormat>
struct Planes : BytePlanes<kFormat.bits() == 8> {
  Planes()
      : BytePlanes<kFormat.bits() == 8>(kTable<Target, kFormat>.low, kTable<Target, kFormat>.high) {
  }
};

}  // namespace
}  // namespace octavo::cpu
