// Vectors of eight f32 lanes (AVX2, F16C, FMA) for the kernels over lanes of this folder. AVX-512
// has its own (avx512/lanes_avx512.h) with the same names.
//
// Everything here, and in the kernels over lanes, has internal linkage on purpose: they are
// compiled once for each instruction set, and the linker must not mix them.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "octavo/tensor/dtype.h"

namespace octavo::cpu {
namespace {

struct Avx2Lanes {
  using Bits = __m256i;   // eight words of 32 bits
  using Floats = __m256;  // the same as f32
  using Mask = __m256i;   // all ones where true
  static constexpr int kLanes = 8;

  static Bits splat(std::uint32_t w) { return _mm256_set1_epi32(static_cast<int>(w)); }
  static Floats as_floats(Bits a) { return _mm256_castsi256_ps(a); }
  static Bits as_bits(Floats a) { return _mm256_castps_si256(a); }
  static Bits band(Bits a, Bits b) { return _mm256_and_si256(a, b); }
  static Bits bor(Bits a, Bits b) { return _mm256_or_si256(a, b); }
  static Bits bxor(Bits a, Bits b) { return _mm256_xor_si256(a, b); }
  static Bits add(Bits a, Bits b) { return _mm256_add_epi32(a, b); }
  static Bits sub(Bits a, Bits b) { return _mm256_sub_epi32(a, b); }
  static Bits min(Bits a, Bits b) { return _mm256_min_epu32(a, b); }
  static Bits max(Bits a, Bits b) { return _mm256_max_epu32(a, b); }
  static Bits max_signed(Bits a, Bits b) { return _mm256_max_epi32(a, b); }
  static Bits shift_left(Bits a, int n) { return _mm256_sll_epi32(a, _mm_cvtsi32_si128(n)); }
  static Bits shift_right(Bits a, int n) { return _mm256_srl_epi32(a, _mm_cvtsi32_si128(n)); }
  static Bits shift_each_right(Bits a, Bits n) { return _mm256_srlv_epi32(a, n); }
  // Signed comparison: for magnitudes and small numbers.
  static Mask above(Bits a, Bits b) { return _mm256_cmpgt_epi32(a, b); }
  static Mask equal(Bits a, Bits b) { return _mm256_cmpeq_epi32(a, b); }
  static Mask negative(Bits a) { return _mm256_srai_epi32(a, 31); }
  static Bits select(Mask m, Bits a, Bits b) { return _mm256_blendv_epi8(b, a, m); }
  static Bits keep(Mask m, Bits a) { return _mm256_and_si256(m, a); }
  static Bits fadd(Bits a, Bits b) { return as_bits(_mm256_add_ps(as_floats(a), as_floats(b))); }
  static Bits fsub(Bits a, Bits b) { return as_bits(_mm256_sub_ps(as_floats(a), as_floats(b))); }
  static Bits fmul(Bits a, Bits b) { return as_bits(_mm256_mul_ps(as_floats(a), as_floats(b))); }
  static Bits fdiv(Bits a, Bits b) { return as_bits(_mm256_div_ps(as_floats(a), as_floats(b))); }
  static Mask fequal(Bits a, Bits b) {
    return as_bits(_mm256_cmp_ps(as_floats(a), as_floats(b), _CMP_EQ_OQ));
  }
  static Bits to_float(Bits a) { return as_bits(_mm256_cvtepi32_ps(a)); }

  static Bits load_words(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  static void store_words(Bits a, void* to) { _mm256_storeu_si256(static_cast<__m256i*>(to), a); }
  // Eight elements as f32 bits, exactly.
  template <DType kSource>
  static Bits load(const std::byte* from) {
    if constexpr (kSource == DType::f32) return load_words(from);
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    if constexpr (kSource == DType::f16) return as_bits(_mm256_cvtph_ps(halves));
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
  }
  static Bits load_codes(const std::uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }

  // The low bytes of four vectors, in order.
  static constexpr int kGroup = 4 * kLanes;
  static void store_bytes(const Bits v[4], std::uint8_t* to) {
    const __m256i a = _mm256_packus_epi32(v[0], v[1]), b = _mm256_packus_epi32(v[2], v[3]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    store_words(_mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order), to);
  }
  // The same of the first kVectors vectors.
  template <int kVectors>
  static void store_some(const Bits v[4], std::uint8_t* to) {
    static_assert(kVectors == 4);
    store_bytes(v, to);
  }
  // Two codes of four bits to a byte, the first below; four vectors are half a group of bytes.
  static void store_nibbles(const Bits v[4], std::uint8_t* to) {
    const __m256i a = _mm256_packus_epi32(v[0], v[1]), b = _mm256_packus_epi32(v[2], v[3]);
    const __m256i bytes = _mm256_packus_epi16(a, b);  // four bytes of each vector, lane by lane
    const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x1001));
    const __m256i packed = _mm256_packus_epi16(pairs, pairs);
    // packed: lane 0 has pairs of v0.lo v1.lo v2.lo v3.lo, lane 1 those of the upper halves.
    const __m128i low = _mm256_castsi256_si128(packed), high = _mm256_extracti128_si256(packed, 1);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_unpacklo_epi16(low, high));
  }

  // f32 bits of eight elements to memory: as f32, f64, f16 or bf16, all of which hold them.
  template <DType kTarget>
  static void store(Bits a, std::byte* to) {
    if constexpr (kTarget == DType::f32) {
      store_words(a, to);
    } else if constexpr (kTarget == DType::f64) {
      auto* wide = reinterpret_cast<double*>(to);
      const __m256 f = as_floats(a);
      _mm256_storeu_pd(wide, _mm256_cvtps_pd(_mm256_castps256_ps128(f)));
      _mm256_storeu_pd(wide + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(f, 1)));
    } else if constexpr (kTarget == DType::f16) {
      const __m128i halves = _mm256_cvtps_ph(as_floats(a), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), halves);
    } else {
      const __m256i tops = _mm256_srli_epi32(a, 16);
      const __m256i pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32(tops, tops), 0x08);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(pairs));
    }
  }

  static std::uint32_t largest(Bits a) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(m));
  }

  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
  static Floats fsplat(float a) { return _mm256_set1_ps(a); }
  static Floats fload(const float* from) { return _mm256_loadu_ps(from); }
  static void fstore(float* to, Floats a) { _mm256_storeu_ps(to, a); }
  static Floats fplus(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static Floats ftimes(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static Floats fminus(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  // b where they cannot be compared.
  static Floats fmax(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static Floats fceil(Floats a) { return _mm256_round_ps(a, 0x0A); }
  // Toward zero.
  static Bits to_int(Floats a) { return _mm256_cvttps_epi32(a); }
  static Mask fsame(Floats a, Floats b) {
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_EQ_OQ));
  }
  // True for NaN.
  static Mask fexceeds(Floats a, Floats b) {
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_NLE_UQ));
  }
  static Mask is_nan(Floats a) { return _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)); }
  static Floats fselect(Mask m, Floats a, Floats b) {
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(m));
  }
  static Bits keep_sum(Mask m, Bits a, Bits b) { return keep(m, add(a, b)); }
  static Mask either(Mask a, Mask b) { return _mm256_or_si256(a, b); }
  static bool all(Mask m) { return _mm256_movemask_ps(_mm256_castsi256_ps(m)) == 0xFF; }
  static bool any(Mask m) { return _mm256_movemask_ps(_mm256_castsi256_ps(m)) != 0; }
  static float fsum(Floats a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
};

}  // namespace
}  // namespace octavo::cpu
