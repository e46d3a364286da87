// What the search for NVFP4's scales (avx2/fp4_search_kernel.h) does in words of 16 bits, sixteen
// tiles at a time. E2M1 is a table of 32 words.
#pragma once

#include <immintrin.h>

#include "octavo/backend/cpu/isa/avx512/lanes_avx512.h"
#include "octavo/backend/cpu/isa/portable/fp4_search_bounds.h"

namespace octavo::cpu {
namespace {

struct Avx512Words {
  using Bits = __m512i;

  template <DType kSource>
  static void fixed_point(const std::byte* from, const float* factor, Bits (&pairs)[8]) {
    constexpr int kTile = 16 * element_bytes(kSource);
    // Eight pairs of tile t, and of tile t + 8.
#pragma GCC unroll 8
    for (int t = 0; t < 8; ++t) {
      const std::byte *const at = from + t * kTile, *const after = at + 8 * kTile;
      const __m512 by = _mm512_set1_ps(factor[t]), by_after = _mm512_set1_ps(factor[t + 8]);
      const auto fixed = [](__m512i x, __m512 times) __attribute__((always_inline)) {
        return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_castsi512_ps(x), times));
      };
      __m512i low, high;
      if constexpr (kSource == DType::f32) {
        const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
        const __m512i a = fixed(_mm512_and_si512(_mm512_loadu_si512(at), magnitude), by),
                      b = fixed(_mm512_and_si512(_mm512_loadu_si512(after), magnitude), by_after);
        low = _mm512_shuffle_i32x4(a, b, 0x44);
        high = _mm512_shuffle_i32x4(a, b, 0xEE);
      } else {
        const auto half = [](const std::byte* p) __attribute__((always_inline)) {
          return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        };
        const __m512i words =
            _mm512_and_si512(_mm512_inserti64x4(_mm512_castsi256_si512(half(at)), half(after), 1),
                             _mm512_set1_epi32(0x7FFF7FFF));
        const __m512 both = _mm512_mask_blend_ps(0xFF00, by, by_after);
        low = fixed(_mm512_slli_epi32(words, 16), both);
        high = fixed(_mm512_and_si512(words, _mm512_set1_epi32(-0x10000)), both);
      }
      pairs[t] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    }
    transpose(pairs);
  }
  static Bits times(Bits u, Bits quotient) { return _mm512_mulhrs_epi16(u, quotient); }
  static Bits squares(Bits error) { return _mm512_madd_epi16(error, error); }
  static Bits minus(Bits a, Bits b) { return _mm512_sub_epi16(a, b); }

  struct Grid {
    __m512i table = _mm512_slli_epi16(_mm512_cvtepu8_epi16(_mm256_loadu_si256(
                                          reinterpret_cast<const __m256i*>(Fp4Search::kGrid))),
                                      8);

    Bits operator()(Bits u) const {
      return _mm512_permutexvar_epi16(_mm512_srli_epi16(u, Fp4Search::kIndexShift), table);
    }
  };

 private:
  // Eight by eight words, in each half.
  static void transpose(Bits (&r)[8]) {
    __m512i t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
      r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
      r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
      r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    const __m512i evens = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13),
                  odds = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm512_permutex2var_epi64(r[i], evens, r[i + 4]);
      t[i + 4] = _mm512_permutex2var_epi64(r[i], odds, r[i + 4]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) r[i] = t[i];
  }
};

}  // namespace
}  // namespace octavo::cpu
