// Sixteen rows of sixteen 32-bit words, transposed in registers.
#pragma once

#include <immintrin.h>

namespace octavo::cpu {
namespace {

// The 128-bit lanes of four vectors: lane j of vector i becomes lane i of vector j.
[[gnu::always_inline]] inline void transpose_lanes(__m512i (&r)[4]) {
  const __m512i a = _mm512_shuffle_i32x4(r[0], r[1], 0x44),
                b = _mm512_shuffle_i32x4(r[2], r[3], 0x44),
                c = _mm512_shuffle_i32x4(r[0], r[1], 0xEE),
                d = _mm512_shuffle_i32x4(r[2], r[3], 0xEE);
  r[0] = _mm512_shuffle_i32x4(a, b, 0x88);
  r[1] = _mm512_shuffle_i32x4(a, b, 0xDD);
  r[2] = _mm512_shuffle_i32x4(c, d, 0x88);
  r[3] = _mm512_shuffle_i32x4(c, d, 0xDD);
}
// The words of each lane: word j of vector i becomes word i of vector j.
[[gnu::always_inline]] inline void transpose_words(__m512i (&r)[4]) {
  const __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpacklo_epi32(r[2], r[3]),
                c = _mm512_unpackhi_epi32(r[0], r[1]), d = _mm512_unpackhi_epi32(r[2], r[3]);
  r[0] = _mm512_unpacklo_epi64(a, b);
  r[1] = _mm512_unpackhi_epi64(a, b);
  r[2] = _mm512_unpacklo_epi64(c, d);
  r[3] = _mm512_unpackhi_epi64(c, d);
}

[[gnu::always_inline]] inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // r[4 g + c] has, in its 128-bit lane l, column 4 l + c of the rows 4 g to 4 g + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xDD);
    t[8 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xDD);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    r[c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0x88);
    r[8 + c] = _mm512_shuffle_i32x4(t[c], t[8 + c], 0xDD);
    r[4 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0x88);
    r[12 + c] = _mm512_shuffle_i32x4(t[4 + c], t[12 + c], 0xDD);
  }
}

}  // namespace
}  // namespace octavo::cpu
