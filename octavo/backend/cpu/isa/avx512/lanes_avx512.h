// Vectors of sixteen f32 lanes (AVX-512 F, BW, DQ, VL), with the names of Avx2Lanes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "octavo/tensor/dtype.h"

namespace octavo::cpu {
namespace {

struct Avx512Lanes {
  using Bits = __m512i;
  using Floats = __m512;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;

  static Bits splat(std::uint32_t w) { return _mm512_set1_epi32(static_cast<int>(w)); }
  static Floats as_floats(Bits a) { return _mm512_castsi512_ps(a); }
  static Bits as_bits(Floats a) { return _mm512_castps_si512(a); }
  static Bits band(Bits a, Bits b) { return _mm512_and_si512(a, b); }
  static Bits bor(Bits a, Bits b) { return _mm512_or_si512(a, b); }
  static Bits bxor(Bits a, Bits b) { return _mm512_xor_si512(a, b); }
  static Bits add(Bits a, Bits b) { return _mm512_add_epi32(a, b); }
  static Bits sub(Bits a, Bits b) { return _mm512_sub_epi32(a, b); }
  static Bits min(Bits a, Bits b) { return _mm512_min_epu32(a, b); }
  static Bits max(Bits a, Bits b) { return _mm512_max_epu32(a, b); }
  static Bits max_signed(Bits a, Bits b) { return _mm512_max_epi32(a, b); }
  static Bits shift_left(Bits a, int n) { return _mm512_sll_epi32(a, _mm_cvtsi32_si128(n)); }
  static Bits shift_right(Bits a, int n) { return _mm512_srl_epi32(a, _mm_cvtsi32_si128(n)); }
  static Bits shift_each_right(Bits a, Bits n) { return _mm512_srlv_epi32(a, n); }
  static Mask above(Bits a, Bits b) { return _mm512_cmpgt_epi32_mask(a, b); }
  static Mask equal(Bits a, Bits b) { return _mm512_cmpeq_epi32_mask(a, b); }
  static Mask negative(Bits a) { return _mm512_movepi32_mask(a); }
  static Bits select(Mask m, Bits a, Bits b) { return _mm512_mask_blend_epi32(m, b, a); }
  static Bits keep(Mask m, Bits a) { return _mm512_maskz_mov_epi32(m, a); }
  static Bits fadd(Bits a, Bits b) { return as_bits(_mm512_add_ps(as_floats(a), as_floats(b))); }
  static Bits fsub(Bits a, Bits b) { return as_bits(_mm512_sub_ps(as_floats(a), as_floats(b))); }
  static Bits fmul(Bits a, Bits b) { return as_bits(_mm512_mul_ps(as_floats(a), as_floats(b))); }
  static Bits fdiv(Bits a, Bits b) { return as_bits(_mm512_div_ps(as_floats(a), as_floats(b))); }
  static Mask fequal(Bits a, Bits b) {
    return _mm512_cmp_ps_mask(as_floats(a), as_floats(b), _CMP_EQ_OQ);
  }
  static Bits to_float(Bits a) { return as_bits(_mm512_cvtepi32_ps(a)); }

  static Bits load_words(const void* from) { return _mm512_loadu_si512(from); }
  static void store_words(Bits a, void* to) { _mm512_storeu_si512(to, a); }
  template <DType kSource>
  static Bits load(const std::byte* from) {
    if constexpr (kSource == DType::f32) return load_words(from);
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    if constexpr (kSource == DType::f16) return as_bits(_mm512_cvtph_ps(halves));
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
  }
  static Bits load_codes(const std::uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  static constexpr int kGroup = 4 * kLanes;
  static void store_bytes(const Bits v[4], std::uint8_t* to) {
    const __m512i a = _mm512_packus_epi32(v[0], v[1]), b = _mm512_packus_epi32(v[2], v[3]);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    store_words(_mm512_permutexvar_epi32(order, _mm512_packus_epi16(a, b)), to);
  }
  template <int kVectors>
  static void store_some(const Bits v[4], std::uint8_t* to) {
    static_assert(kVectors == 2);
    for (int i = 0; i < kVectors; ++i)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 * i), _mm512_cvtepi32_epi8(v[i]));
  }
  static void store_nibbles(const Bits v[4], std::uint8_t* to) {
    const __m512i a = _mm512_packus_epi32(v[0], v[1]), b = _mm512_packus_epi32(v[2], v[3]);
    const __m512i pairs =
        _mm512_maddubs_epi16(_mm512_packus_epi16(a, b), _mm512_set1_epi16(0x1001));
    // Words of 32 bits have two bytes of a vector each, in the order of store_bytes.
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m256i bytes = _mm512_cvtepi16_epi8(_mm512_permutexvar_epi32(order, pairs));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
  }

  template <DType kTarget>
  static void store(Bits a, std::byte* to) {
    if constexpr (kTarget == DType::f32) {
      store_words(a, to);
    } else if constexpr (kTarget == DType::f64) {
      auto* wide = reinterpret_cast<double*>(to);
      const __m512 f = as_floats(a);
      _mm512_storeu_pd(wide, _mm512_cvtps_pd(_mm512_castps512_ps256(f)));
      _mm512_storeu_pd(wide + 8, _mm512_cvtps_pd(_mm512_extractf32x8_ps(f, 1)));
    } else if constexpr (kTarget == DType::f16) {
      const __m256i halves = _mm512_cvtps_ph(as_floats(a), _MM_FROUND_TO_NEAREST_INT);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
    } else {
      const __m256i tops = _mm512_cvtepi32_epi16(_mm512_srli_epi32(a, 16));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), tops);
    }
  }

  static std::uint32_t largest(Bits a) { return _mm512_reduce_max_epu32(a); }

  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static Floats fsplat(float a) { return _mm512_set1_ps(a); }
  static Floats fload(const float* from) { return _mm512_loadu_ps(from); }
  static void fstore(float* to, Floats a) { _mm512_storeu_ps(to, a); }
  static Floats fplus(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats ftimes(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats fminus(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats fmax(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Floats fceil(Floats a) {
    return _mm512_roundscale_ps(a, 0x0A);  // to an integer, up, without exceptions
  }
  static Bits to_int(Floats a) { return _mm512_cvttps_epi32(a); }
  static Mask fsame(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static Mask fexceeds(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
  static Mask is_nan(Floats a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
  static Floats fselect(Mask m, Floats a, Floats b) { return _mm512_mask_blend_ps(m, b, a); }
  static Bits keep_sum(Mask m, Bits a, Bits b) { return _mm512_maskz_add_epi32(m, a, b); }
  static Mask either(Mask a, Mask b) { return static_cast<Mask>(a | b); }
  static bool all(Mask m) { return m == 0xFFFF; }
  static bool any(Mask m) { return m != 0; }
  static float fsum(Floats a) { return _mm512_reduce_add_ps(a); }
};

}  // namespace
}  // namespace octavo::cpu
