// What the search for NVFP4's scales (fp4_search_kernel.h) does in words of 16 bits, eight tiles at
// a time. E2M1 is a table of sixteen bytes, and what saturates is two quarters above its last.
#pragma once

#include <immintrin.h>

#include "octavo/backend/cpu/isa/avx2/lanes_avx2.h"
#include "octavo/backend/cpu/isa/portable/fp4_search_bounds.h"

namespace octavo::cpu {
namespace {

struct Avx2Words {
  using Bits = __m256i;

  // Of tile t times factor[t], as integers: word pair k of tile t in lane t of pairs[k]. In which
  // pair a value is does not matter.
  template <DType kSource>
  static void fixed_point(const std::byte* from, const float* factor, Bits (&pairs)[8]) {
    const __m256i magnitude = _mm256_set1_epi32(kSource == DType::f32 ? 0x7FFFFFFF : 0x7FFF7FFF);
#pragma GCC unroll 8
    for (int t = 0; t < 8; ++t) {
      const std::byte* const at = from + t * 16 * element_bytes(kSource);
      const __m256 by = _mm256_set1_ps(factor[t]);
      const auto load = [&](int i) __attribute__((always_inline)) {
        return _mm256_and_si256(Avx2Lanes::load_words(at + 32 * i), magnitude);
      };
      const auto fixed = [&](__m256i x) __attribute__((always_inline)) {
        return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(x), by));
      };
      __m256i low, high;
      if constexpr (kSource == DType::f32) {
        low = fixed(load(0));
        high = fixed(load(1));
      } else {
        const __m256i words = load(0);
        low = fixed(_mm256_slli_epi32(words, 16));
        high = fixed(_mm256_and_si256(words, _mm256_set1_epi32(-0x10000)));
      }
      pairs[t] = _mm256_or_si256(low, _mm256_slli_epi32(high, 16));
    }
    Avx2Lanes::transpose(pairs);
  }
  static Bits times(Bits u, Bits quotient) { return _mm256_mulhrs_epi16(u, quotient); }
  static Bits squares(Bits error) { return _mm256_madd_epi16(error, error); }
  static Bits minus(Bits a, Bits b) { return _mm256_sub_epi16(a, b); }

  // The value of E2M1 nearest to u.
  struct Grid {
    __m256i table = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(Fp4Search::kGrid)));
    __m256i last = _mm256_set1_epi16(15),
            five = _mm256_set1_epi16(5 * static_cast<int>(Fp4Search::kUnit) - 1),
            two = _mm256_set1_epi16(2 * static_cast<int>(Fp4Search::kUnit));

    Bits operator()(Bits u) const {
      const __m256i quarter = _mm256_min_epi16(_mm256_srli_epi16(u, Fp4Search::kIndexShift), last);
      const __m256i value = _mm256_slli_epi16(_mm256_shuffle_epi8(table, quarter), 8);
      return _mm256_add_epi16(value, _mm256_and_si256(_mm256_cmpgt_epi16(u, five), two));
    }
  };
};
static_assert(Fp4Search::kGrid[15] == 64 && Fp4Search::kGrid[19] == 64 &&
              Fp4Search::kGrid[20] == 96);

}  // namespace
}  // namespace octavo::cpu
