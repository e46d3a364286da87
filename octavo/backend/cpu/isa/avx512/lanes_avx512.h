// Vectors of sixteen f32 lanes (AVX-512 F, BW, DQ, VL), with the names of Avx2Lanes.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/isa/avx512/transpose16.h"
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
  static Bits max_halves(Bits a, Bits b) { return _mm512_max_epu16(a, b); }
  static Bits max_bytes(Bits a, Bits b) { return _mm512_max_epu8(a, b); }
  static Bits max_signed(Bits a, Bits b) { return _mm512_max_epi32(a, b); }
  static Bits shift_left(Bits a, int n) { return _mm512_sllv_epi32(a, _mm512_set1_epi32(n)); }
  static Bits shift_right(Bits a, int n) { return shift_each_right(a, _mm512_set1_epi32(n)); }
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
  static Bits fmla(Bits a, Bits b, Bits c) {
    return as_bits(_mm512_fmadd_ps(as_floats(a), as_floats(b), as_floats(c)));
  }
  static Bits fmin(Bits a, Bits b) { return as_bits(_mm512_min_ps(as_floats(a), as_floats(b))); }
  static Bits fmax(Bits a, Bits b) { return as_bits(_mm512_max_ps(as_floats(a), as_floats(b))); }
  static Bits merge(Bits mask, Bits a, Bits b) {
    return _mm512_ternarylogic_epi32(mask, a, b, 0xCA);
  }
  static Bits with_sign(Bits sign_bit, Bits from, Bits a) {
    return _mm512_ternarylogic_epi32(from, a, sign_bit, 0xE4);
  }
  static Bits sign_extend_top(Bits a) { return _mm512_srai_epi32(a, 24); }
  static Bits look_up(const float* table, Bits i) {
    return as_bits(_mm512_i32gather_ps(i, table, 4));
  }
  static Bits small_table(const void* table, Bits i) {
    return _mm512_permutexvar_epi32(i, _mm512_load_si512(table));
  }
  static std::uint32_t mask_bits(Mask m) { return m; }
  static Mask mask_of(std::uint32_t bits) { return static_cast<Mask>(bits); }
  static Bits to_float(Bits a) { return as_bits(_mm512_cvtepi32_ps(a)); }

  static Bits load_words(const void* from) { return _mm512_loadu_si512(from); }
  static void stream_words(Bits a, void* to) { _mm512_stream_si512(static_cast<__m512i*>(to), a); }
  static void stored() { _mm_sfence(); }
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
  template <DType kSource>
  static void load_group(const std::byte* from, Bits v[4]) {
    if constexpr (kSource == DType::bf16) {
      for (int i = 0; i < 4; i += 2) {
        const Bits pairs = load_words(from + 32 * i);
        v[i] = _mm512_slli_epi32(pairs, 16);
        v[i + 1] = band(pairs, splat(0xFFFF0000u));
      }
    } else {
      constexpr int kBytes = element_bytes(kSource);
      for (int i = 0; i < 4; ++i) v[i] = load<kSource>(from + i * kLanes * kBytes);
    }
  }
  static Bits pack(const Bits v[4], Bits bias) {
    const __m512i a = _mm512_packs_epi32(v[0], v[1]), b = _mm512_packs_epi32(v[2], v[3]);
    return _mm512_packs_epi16(_mm512_sub_epi16(a, bias), _mm512_sub_epi16(b, bias));
  }
  static Bits pack_signs(const Bits v[4]) {
    return _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
  }
  static Bits pack_codes(const Bits v[4]) {
    return _mm512_packus_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
  }
  template <DType kSource>
  static Bits in_order(Bits packed) {
    if constexpr (kSource == DType::bf16) {
      const __m512i zip = _mm512_set4_epi32(0x0F0B0E0A, 0x0D090C08, 0x07030602, 0x05010400);
      const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
      return _mm512_permutexvar_epi64(order, _mm512_shuffle_epi8(packed, zip));
    } else {
      const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
      return _mm512_permutexvar_epi32(order, packed);
    }
  }
  static Bits where_top(Bits field, Bits a, Bits b) {
    return _mm512_mask_blend_epi8(_mm512_cmpeq_epi8_mask(field, _mm512_set1_epi8(127)), b, a);
  }
  static Bits splat_bytes(std::uint32_t byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
  static Bits splat_halves(std::uint32_t half) {
    return _mm512_set1_epi16(static_cast<short>(half));
  }
  static void store_nibbles(Bits codes, std::uint8_t* to) {
    const __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x1001));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(pairs));
  }
  static void store_low_bytes(Bits a, std::uint8_t* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(a));
  }

  static constexpr int kTilesOf16 = kGroup / 16;
  // Vectors of bf16 have two tiles.
  template <DType kSource>
  static Bits of_tile(const float* of, int i) {
    if constexpr (kSource != DType::bf16) return as_bits(_mm512_set1_ps(of[i]));
    const float* two = of + i / 2 * 2;
    return as_bits(_mm512_mask_blend_ps(0xFF00, _mm512_set1_ps(two[0]), _mm512_set1_ps(two[1])));
  }
  template <int kTile>
  static Bits spread(const std::uint32_t* of) {
    static_assert(kTile == kGroup / 2 || kTile == kGroup / 4);
    const __m512i order = kTile == kGroup / 2
                              ? _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1)
                              : _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    const __m128i some = kTile == kGroup / 2
                             ? _mm_loadl_epi64(reinterpret_cast<const __m128i*>(of))
                             : _mm_loadu_si128(reinterpret_cast<const __m128i*>(of));
    return _mm512_permutexvar_epi32(order, _mm512_castsi128_si512(some));
  }

  // The amaxes of sixteen tiles. Two tiles of sixteen bf16 are one vector, halved.
  template <DType kSource, int kCount>
  static Bits amaxes(const std::byte* from) {
    constexpr int kVector = 64 / element_bytes(kSource), kStep = kCount * element_bytes(kSource);
    constexpr bool kHalves = kStep < 64;
    constexpr int kVectors = kHalves ? 8 : 16;
    const Bits magnitude = splat(kSource == DType::f32 ? 0x7FFFFFFFu : 0x7FFF7FFFu);
    Bits most[kVectors];
#pragma GCC unroll 16
    for (int t = 0; t < kVectors; ++t) {
      const std::byte* at = from + t * (kHalves ? 64 : kStep);
      most[t] = band(load_words(at), magnitude);
      for (int i = 1; i < kCount / kVector; ++i) {
        const Bits more = band(load_words(at + 64 * i), magnitude);
        most[t] = kSource == DType::f32 ? max(most[t], more) : _mm512_max_epu16(most[t], more);
      }
      if constexpr (kSource == DType::bf16)
        most[t] = _mm512_max_epu16(most[t], _mm512_slli_epi32(most[t], 16));
    }
#pragma GCC unroll 8
    for (int t = 0; t < kVectors / 2; ++t)
      most[t] = max(_mm512_unpacklo_epi32(most[2 * t], most[2 * t + 1]),
                    _mm512_unpackhi_epi32(most[2 * t], most[2 * t + 1]));
#pragma GCC unroll 4
    for (int t = 0; t < kVectors / 4; ++t)
      most[t] = max(_mm512_unpacklo_epi64(most[2 * t], most[2 * t + 1]),
                    _mm512_unpackhi_epi64(most[2 * t], most[2 * t + 1]));
#pragma GCC unroll 2
    for (int t = 0; t < kVectors / 8; ++t)
      most[t] = max(_mm512_shuffle_i32x4(most[2 * t], most[2 * t + 1], 0x88),
                    _mm512_shuffle_i32x4(most[2 * t], most[2 * t + 1], 0xDD));
    Bits all = most[0];
    if constexpr (kHalves) {
      // 128-bit lanes: tiles 0 2 4 6, 1 3 5 7, 8 10 12 14, 9 11 13 15.
      const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
      all = _mm512_permutexvar_epi32(order, all);
    } else {
      all = max(_mm512_shuffle_i32x4(most[0], most[1], 0x88),
                _mm512_shuffle_i32x4(most[0], most[1], 0xDD));
    }
    return kSource == DType::f32 ? all : band(all, splat(0xFFFF0000u));
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

  static Bits nibble_table(const float* values) { return load_words(values); }
  static Bits nibble_value(Bits table, Bits words) {
    return _mm512_permutexvar_epi32(words, table);
  }

  static void transpose(Bits (&r)[16]) { cpu::transpose(r); }

  static std::uint32_t largest(Bits a) { return _mm512_reduce_max_epu32(a); }

  static __m128 four_sums(const Bits v[1]) {
    const __m512 all = as_floats(v[0]);
    const __m256 halves =
        _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
  }

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
  static void fsums(const Floats* v, float* to) {
    Floats twos[8], fours[4], eights[2];  // parts of the sums of so many vectors in 128 bits
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      twos[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                              _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512d a = _mm512_castps_pd(twos[2 * i]), b = _mm512_castps_pd(twos[2 * i + 1]);
      fours[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                               _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    const auto halves = [](Floats a, Floats b) {
      return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
    };
    for (int i = 0; i < 2; ++i) eights[i] = halves(fours[2 * i], fours[2 * i + 1]);
    _mm512_storeu_ps(to, halves(eights[0], eights[1]));
  }
};

}  // namespace
}  // namespace octavo::cpu
