// Two bf16 in each word of a vector, as f32: those with even and those with odd k.
#pragma once

#include <immintrin.h>

namespace octavo::cpu {
namespace {

[[gnu::always_inline]] inline __m512 even_of(__m512i words) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}
[[gnu::always_inline]] inline __m512 odd_of(__m512i words) {
  return _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(-0x10000)));
}

}  // namespace
}  // namespace octavo::cpu
