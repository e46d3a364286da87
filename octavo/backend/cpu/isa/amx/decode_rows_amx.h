// Rows of keys and values of decode attention as bf16 for tiles: lines of 32 elements of a key, and
// pairs of values of two keys. Of bf16 and of e4m3, decoded by byte planes in the order that
// interleaving leaves.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/isa/amx/tiles.h"
#include "octavo/backend/cpu/isa/avx512/transpose16.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/planes.h"

namespace octavo::cpu {
namespace {

struct Bf16Rows {
  static constexpr std::int64_t kBytes = 2, kStep = 32;  // rows are padded to multiples of it
  static constexpr bool kInPlace = true;                 // rows of keys are lines of tiles
  static constexpr int element_of(int i) { return i; }

  static __m512i load(const std::byte* row, std::int64_t at, std::int64_t size) {
    const std::int64_t left = size - at;
    if (left >= 32) return _mm512_loadu_si512(row + 2 * at);
    const __mmask32 there = left <= 0 ? __mmask32{0} : (__mmask32{1} << left) - 1;
    return _mm512_maskz_loadu_epi16(there, row + 2 * at);
  }
  void line(const std::byte* row, std::int64_t at, std::int64_t size, std::byte* to) const {
    _mm512_store_si512(to, load(row, at, size));
  }
  // 64 channels of two keys, or of one, as a row of each of four tiles.
  template <bool kBoth>
  [[gnu::always_inline]] void pair(const std::byte* first, const std::byte* second,
                                   std::int64_t size, std::byte* to) const {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i even = load(first, 32 * h, size),
                    odd = kBoth ? load(second, 32 * h, size) : _mm512_setzero_si512();
      _mm512_store_si512(to + 2 * h * kTileBytes, _mm512_unpacklo_epi16(even, odd));
      _mm512_store_si512(to + (2 * h + 1) * kTileBytes, _mm512_unpackhi_epi16(even, odd));
    }
  }
  // Tiles 2 h and 2 h + 1 have, in lane l, channels 32 h + 8 l on, and four beyond.
  [[gnu::always_inline]] static void put_in_order(__m512i (&sums)[4]) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m512i low = sums[2 * h], high = sums[2 * h + 1];
      const __m512i a = _mm512_shuffle_i32x4(low, high, 0x44),
                    b = _mm512_shuffle_i32x4(low, high, 0xEE);
      sums[2 * h] = _mm512_shuffle_i32x4(a, a, 0xD8);
      sums[2 * h + 1] = _mm512_shuffle_i32x4(b, b, 0xD8);
    }
  }
};

struct E4m3Rows {
  static constexpr std::int64_t kBytes = 1, kStep = 64;
  static constexpr bool kInPlace = false;
  // Of every sixteen elements, a lane, the first eight, then the others.
  static constexpr int element_of(int i) { return i % 32 / 8 * 16 + i / 32 * 8 + i % 8; }

  static __m512i load(const std::byte* row, std::int64_t at, std::int64_t size) {
    const std::int64_t left = size - at;
    if (left >= 64) return _mm512_loadu_si512(row + at);
    return _mm512_maskz_loadu_epi8((__mmask64{1} << left) - 1, row + at);
  }
  [[gnu::always_inline]] void line(const std::byte* row, std::int64_t at, std::int64_t size,
                                   std::byte* to) const {
    __m512i words[2];
    planes_.in_lanes(load(row, at, size), words);
    _mm512_store_si512(to, words[0]);
    _mm512_store_si512(to + kLine, words[1]);
  }
  template <bool kBoth>
  [[gnu::always_inline]] void pair(const std::byte* first, const std::byte* second,
                                   std::int64_t size, std::byte* to) const {
    const __m512i even = load(first, 0, size),
                  odd = kBoth ? load(second, 0, size) : _mm512_setzero_si512();
    const __m512i codes[2] = {_mm512_unpacklo_epi8(even, odd), _mm512_unpackhi_epi8(even, odd)};
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      __m512i words[2];
      planes_.in_lanes(codes[h], words);
      _mm512_store_si512(to + 2 * h * kTileBytes, words[0]);
      _mm512_store_si512(to + (2 * h + 1) * kTileBytes, words[1]);
    }
  }
  // Tile t has, in lane l, channels 16 l + 4 t on.
  [[gnu::always_inline]] static void put_in_order(__m512i (&sums)[4]) { transpose_lanes(sums); }

 private:
  Planes<Bfloat, e4m3fn> planes_;
};

}  // namespace
}  // namespace octavo::cpu
