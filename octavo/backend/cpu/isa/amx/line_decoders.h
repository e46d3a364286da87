// Rows of B as lines of tiles: 32 elements of K of one row to 32 words of bf16, in order, with the
// scales of their tiles multiplied in. Nothing is transposed, and a line has one scale, or two: so
// four bits and their scale are one table, of which VPERMW takes what it needs.
//
// Operations on two ports for a line: e2m1 with a power of two 3, with two e4m3 scales 5; codes of
// eight bits 4, and 2 to see whether all are normal numbers. Those that are not take byte planes.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstring>

#include "octavo/backend/cpu/isa/amx/amx_internal.h"
#include "octavo/backend/cpu/isa/amx/pack_columns.h"

namespace octavo::cpu {
namespace {

// Elements of a row that are decoded at a time, and of a line.
constexpr std::int64_t kLinePiece = kAmxLineRun, kLineWords = 32;
constexpr int kPieceLines = kLinePiece / kLineWords;
// Where line i of a row is: in the lower half of one page after another, 4 KiB each. What is
// decoded goes to one half while tiles are loaded from the other, because a load waits for stores
// before it whose address has the same twelve bits at the end.
constexpr std::int64_t kLinePage = 4096;
constexpr std::int64_t line_at(int i) { return i / 2 * kLinePage + i % 2 * 1024; }

// bf16 as it is.
struct ValueLines {
  static constexpr int kBits = 16;
  static constexpr bool kHasScales = false;

  [[gnu::always_inline]] void operator()(const std::byte* from, const std::uint8_t*, int lines,
                                         std::byte* to) const {
    for (int i = 0; i < lines; ++i)
      _mm512_store_si512(to + line_at(i), _mm512_loadu_si512(from + i * 64));
  }
};

// The bf16 of a number that it holds, or that does not matter.
constexpr std::uint16_t bfloat_of(double value) {
  if (value != value) return Bfloat::kNan;
  constexpr double kMost = 0x1p127;
  if (value >= 2 * kMost || value <= -2 * kMost)
    return static_cast<std::uint16_t>(Bfloat::kInf | (value < 0 ? 0x8000u : 0));
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
}

// Every scale times every code of e2m1: 8 KiB, of which a product has what is near its scales.
template <const Format& kScale>
struct ProductTable {
  alignas(64) std::uint16_t at[256][16]{};

  constexpr ProductTable() {
    for (std::uint32_t scale = 0; scale < 256; ++scale)
      for (std::uint32_t code = 0; code < 16; ++code)
        at[scale][code] = is_nan(kScale, scale)
                              ? Bfloat::kNan
                              : bfloat_of(decode(kScale, scale) * decode(e2m1fn, code));
  }
};
template <const Format& kScale>
constexpr ProductTable<kScale> kProducts;

// e2m1, two codes in a byte, by tiles of 32 with a power of two, of 16 with an e4m3, or as it is.
enum class NibbleScale { none, power_of_32, e4m3_of_16 };
template <NibbleScale kScale>
struct NibbleLines {
  static constexpr int kBits = 4;
  static constexpr bool kHasScales = kScale != NibbleScale::none;
  // Of the eight bytes that make half of a line: the code of each word below, and above it what
  // does not matter.
  __m512i shifts =
      _mm512_setr_epi64(0x0C000800040000, 0x1C00180014'0010, 0x2C00280024'0020, 0x3C00380034'0030,
                        0x0C000800040000, 0x1C00180014'0010, 0x2C00280024'0020, 0x3C00380034'0030);
  __m512i code = _mm512_set1_epi16(15);
  __m512i upper = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
  __m512i plain = _mm512_load_si512(kPairTable<e2m1fn>.at);

  [[gnu::always_inline]] void operator()(const std::byte* from, const std::uint8_t* scales,
                                         int lines, std::byte* to) const {
    for (int i = 0; i < lines; ++i) {
      const auto eight = [&](int at) __attribute__((always_inline)) {
        return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + at));
      };
      const __m128i first = eight(16 * i), second = eight(16 * i + 8);
      const __m512i both =
          _mm512_mask_broadcastq_epi64(_mm512_broadcastq_epi64(first), 0xF0, second);
      __m512i index = _mm512_multishift_epi64_epi8(shifts, both);
      __m512i table = plain;
      if constexpr (kScale == NibbleScale::power_of_32) {
        const std::uint16_t* of = kProducts<e8m0fnu>.at[scales[i]];
        table = _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(of)));
      } else if constexpr (kScale == NibbleScale::e4m3_of_16) {
        index = _mm512_ternarylogic_epi32(index, code, upper, 0xEA);  // (index & code) | upper
        const auto of = [&](int tile) __attribute__((always_inline)) {
          return _mm256_load_si256(
              reinterpret_cast<const __m256i*>(kProducts<e4m3fn>.at[scales[tile]]));
        };
        table = _mm512_inserti64x4(_mm512_castsi256_si512(of(2 * i)), of(2 * i + 1), 1);
      }
      _mm512_store_si512(to + line_at(i), _mm512_permutexvar_epi16(index, table));
    }
  }
};

// What is added to a bf16's exponent for each e8m0, twice: the power, and the difference of biases.
// Of NaN it does not matter.
template <const Format& kFormat>
struct PowerTable {
  std::uint32_t at[256]{};

  constexpr PowerTable() {
    for (std::uint32_t e = 0; e < 256; ++e)
      at[e] = ((e - static_cast<std::uint32_t>(kFormat.bias)) << 7 & 0xFFFFu) * 0x10001u;
  }
};
template <const Format& kFormat>
constexpr PowerTable<kFormat> kPowers;

// e4m3 or e5m2, by tiles of 32 with a power of two, or as it is. A code that is a normal number is
// moved to where bf16 has sign, exponent and mantissa, and the difference of biases, with the
// power, is added.
template <const Format& kFormat, bool kScaled>
struct ByteLines {
  static constexpr int kBits = 8;
  static constexpr bool kHasScales = kScaled;
  static constexpr int kUp = 7 - static_cast<int>(kFormat.mantissa_bits);
  static constexpr std::uint32_t kLeast = 2u << kFormat.mantissa_bits;  // twice a field, that is
  static constexpr std::uint32_t kMost = 2 * kFormat.max_field() - kLeast;
  Planes<Bfloat, kFormat> planes;
  __m512i mask = _mm512_set1_epi16(static_cast<short>(0x8000 | 0x7F << kUp));
  __m512i base = _mm512_set1_epi16(static_cast<short>((127 - kFormat.bias) << 7));

  [[gnu::always_inline]] void operator()(const std::byte* from, const std::uint8_t* scales,
                                         int lines, std::byte* to) const {
    if (!are_normal(from, lines) || (kScaled && has_nan(scales, lines))) [[unlikely]]
      return by_planes(from, scales, lines, to);
    for (int i = 0; i < lines; ++i) {
      const auto* at = reinterpret_cast<const __m256i*>(from + i * kLineWords);
      const __m512i placed = _mm512_slli_epi16(_mm512_cvtepi8_epi16(_mm256_loadu_si256(at)), kUp);
      __m512i added = base;
      if constexpr (kScaled)
        added = _mm512_set1_epi32(static_cast<int>(kPowers<kFormat>.at[scales[i]]));
      _mm512_store_si512(to + line_at(i), _mm512_add_epi16(_mm512_and_si512(placed, mask), added));
    }
  }

 private:
  [[gnu::always_inline]] static __m512i load(const std::byte* from, std::int64_t left) {
    if (left >= 64) return _mm512_loadu_si512(from);
    const __mmask64 there = left > 0 ? (__mmask64{1} << left) - 1 : 0;
    return _mm512_mask_loadu_epi8(_mm512_set1_epi8(kLeast), there, from);
  }
  // Twice a magnitude less the least normal one: what is below it is above all others then.
  [[gnu::always_inline]] static bool are_normal(const std::byte* from, int lines) {
    const std::int64_t left = lines * kLineWords;
    const __m512i least = _mm512_set1_epi8(static_cast<char>(kLeast));
    const auto above = [&](__m512i codes) __attribute__((always_inline)) {
      return _mm512_sub_epi8(_mm512_add_epi8(codes, codes), least);
    };
    const __m512i most =
        _mm512_max_epu8(above(load(from, left)), above(load(from + 64, left - 64)));
    return _mm512_cmpgt_epu8_mask(most, _mm512_set1_epi32(static_cast<int>(kMost * 0x01010101u))) ==
           0;
  }
  // Scales that are applied to elements are far below 192 or NaN, 255.
  [[gnu::always_inline]] static bool has_nan(const std::uint8_t* scales, int lines) {
    std::uint32_t four = 0;
    std::memcpy(&four, scales, static_cast<std::size_t>(lines));
    return (four & four << 1 & 0x80808080u) != 0;
  }
  [[gnu::noinline]] void by_planes(const std::byte* from, const std::uint8_t* scales, int lines,
                                   std::byte* to) const {
    for (int i = 0; i < lines; ++i) {
      __m512i words[2];
      const auto* at = reinterpret_cast<const __m256i*>(from + i * kLineWords);
      planes(_mm512_castsi256_si512(_mm256_loadu_si256(at)), words);
      if constexpr (kScaled) {
        const std::uint32_t scale = scales[i];
        const std::uint32_t bits = scale == 255 ? 0x7FC00000u
                                   : scale == 0 ? 0x00400000u
                                                : scale << 23;
        words[0] = times(words[0], _mm512_set1_ps(std::bit_cast<float>(bits)));
      }
      _mm512_store_si512(to + line_at(i), words[0]);
    }
  }
};

}  // namespace
}  // namespace octavo::cpu
