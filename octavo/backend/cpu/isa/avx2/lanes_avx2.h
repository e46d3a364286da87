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
  static Bits max_halves(Bits a, Bits b) { return _mm256_max_epu16(a, b); }
  static Bits max_bytes(Bits a, Bits b) { return _mm256_max_epu8(a, b); }
  static Bits max_signed(Bits a, Bits b) { return _mm256_max_epi32(a, b); }
  // By a vector of counts: by one count for all they would be two operations each.
  static Bits shift_left(Bits a, int n) { return _mm256_sllv_epi32(a, _mm256_set1_epi32(n)); }
  static Bits shift_right(Bits a, int n) { return shift_each_right(a, _mm256_set1_epi32(n)); }
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
  static Bits fmla(Bits a, Bits b, Bits c) {  // a * b + c
    return as_bits(_mm256_fmadd_ps(as_floats(a), as_floats(b), as_floats(c)));
  }
  // b, where one of them is NaN.
  static Bits fmin(Bits a, Bits b) { return as_bits(_mm256_min_ps(as_floats(a), as_floats(b))); }
  static Bits fmax(Bits a, Bits b) { return as_bits(_mm256_max_ps(as_floats(a), as_floats(b))); }
  // Bits of a where the mask has ones, else those of b.
  static Bits merge(Bits mask, Bits a, Bits b) {
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
  }
  // a, which has none, with the sign of `from`.
  static Bits with_sign(Bits sign_bit, Bits from, Bits a) { return bor(band(from, sign_bit), a); }
  // The byte at the top as an integer.
  static Bits sign_extend_top(Bits a) { return _mm256_srai_epi32(a, 24); }
  // table[i] of each lane, and of tables of sixteen that repeat after eight.
  static Bits look_up(const float* table, Bits i) {
    return as_bits(_mm256_i32gather_ps(table, i, 4));
  }
  static Bits small_table(const void* table, Bits i) {
    return _mm256_permutevar8x32_epi32(load_words(table), i);
  }
  static std::uint32_t mask_bits(Mask m) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(m)));
  }
  static Mask mask_of(std::uint32_t bits) {
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(splat(bits), each), each);
  }
  static Bits to_float(Bits a) { return as_bits(_mm256_cvtepi32_ps(a)); }

  static Bits load_words(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  // Past the caches; `to` is aligned. stored() comes before the data is said to be there.
  static void stream_words(Bits a, void* to) { _mm256_stream_si256(static_cast<__m256i*>(to), a); }
  static void stored() { _mm_sfence(); }
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

  // A group: four vectors of elements, whose codes fill a vector of bytes.
  static constexpr int kGroup = 4 * kLanes;
  // As f32 bits. bf16 in two vectors for sixteen neighbours, the even and the odd ones: half of a
  // word each, without a shuffle. in_order() undoes that.
  template <DType kSource>
  static void load_group(const std::byte* from, Bits v[4]) {
    if constexpr (kSource == DType::bf16) {
      for (int i = 0; i < 4; i += 2) {
        const Bits pairs = load_words(from + 16 * i);
        v[i] = _mm256_slli_epi32(pairs, 16);
        v[i + 1] = band(pairs, splat(0xFFFF0000u));
      }
    } else {
      constexpr int kBytes = element_bytes(kSource);
      for (int i = 0; i < 4; ++i) v[i] = load<kSource>(from + i * kLanes * kBytes);
    }
  }
  // Bytes of a group, `bias` (of each word) taken off and limited to -128 and 127, in an order of
  // their own: four of each vector, lane by lane of 128 bits.
  static Bits pack(const Bits v[4], Bits bias) {
    const __m256i a = _mm256_packs_epi32(v[0], v[1]), b = _mm256_packs_epi32(v[2], v[3]);
    return _mm256_packs_epi16(_mm256_sub_epi16(a, bias), _mm256_sub_epi16(b, bias));
  }
  // The top bits of these are the signs.
  static Bits pack_signs(const Bits v[4]) {
    return _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  }
  // Codes of 0 to 255.
  static Bits pack_codes(const Bits v[4]) {
    return _mm256_packus_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  }
  // Packed bytes in the order of the elements.
  template <DType kSource>
  static Bits in_order(Bits packed) {
    if constexpr (kSource == DType::bf16) {
      const __m256i zip = _mm256_broadcastsi128_si256(
          _mm_setr_epi8(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15));
      return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(packed, zip), 0xD8);
    } else {
      const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
      return _mm256_permutevar8x32_epi32(packed, order);
    }
  }
  // a in bytes of `field` that are 127, else b.
  static Bits where_top(Bits field, Bits a, Bits b) {
    return select(_mm256_cmpeq_epi8(field, _mm256_set1_epi8(127)), a, b);
  }
  static Bits splat_bytes(std::uint32_t byte) { return _mm256_set1_epi8(static_cast<char>(byte)); }
  static Bits splat_halves(std::uint32_t half) {
    return _mm256_set1_epi16(static_cast<short>(half));
  }
  // Two codes of four bits to a byte, the first below; codes in order.
  static void store_nibbles(Bits codes, std::uint8_t* to) {
    const __m256i pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x1001));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
  }
  // The low bytes of a vector.
  static void store_low_bytes(Bits a, std::uint8_t* to) {
    const __m256i halves = _mm256_packus_epi32(a, a), bytes = _mm256_packus_epi16(halves, halves);
    const __m256i order = _mm256_setr_epi32(0, 4, 0, 4, 0, 4, 0, 4);
    const __m256i eight = _mm256_permutevar8x32_epi32(bytes, order);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(eight));
  }

  // Tiles of sixteen in a group: what belongs to vector i of load_group, from one number a tile.
  static constexpr int kTilesOf16 = kGroup / 16;
  template <DType>
  static Bits of_tile(const float* of, int i) {
    return as_bits(_mm256_set1_ps(of[i / 2]));
  }
  // Words of tiles of kTile elements, spread over the bytes of their codes in order.
  template <int kTile>
  static Bits spread(const std::uint32_t* of) {
    if constexpr (kTile == kGroup) return splat(*of);
    static_assert(kTile == kGroup || kTile == kGroup / 2);
    // Not by a load of both: GCC makes a VMOVQ of registers of it, in a form that valgrind lacks.
    return _mm256_blend_epi32(splat(of[0]), splat(of[1]), 0xF0);
  }

  // The amaxes of eight neighbouring tiles of kCount values, as the bits of f32. Maxima of eight
  // vectors are found while they are transposed: two shuffles and a maximum make one of two.
  template <DType kSource, int kCount>
  static Bits amaxes(const std::byte* from) {
    constexpr int kVector = 32 / element_bytes(kSource), kStep = kCount * element_bytes(kSource);
    const Bits magnitude = splat(kSource == DType::f32 ? 0x7FFFFFFFu : 0x7FFF7FFFu);
    Bits most[8];
    for (int t = 0; t < 8; ++t, from += kStep) {
      most[t] = band(load_words(from), magnitude);
      for (int i = 1; i < kCount / kVector; ++i) {
        const Bits more = band(load_words(from + 32 * i), magnitude);
        most[t] = kSource == DType::f32 ? max(most[t], more) : _mm256_max_epu16(most[t], more);
      }
      // The upper half of a word is the larger of both; what is below it does not matter.
      if constexpr (kSource == DType::bf16)
        most[t] = _mm256_max_epu16(most[t], _mm256_slli_epi32(most[t], 16));
    }
    for (int t = 0; t < 4; ++t)
      most[t] = max(_mm256_unpacklo_epi32(most[2 * t], most[2 * t + 1]),
                    _mm256_unpackhi_epi32(most[2 * t], most[2 * t + 1]));
    for (int t = 0; t < 2; ++t)
      most[t] = max(_mm256_unpacklo_epi64(most[2 * t], most[2 * t + 1]),
                    _mm256_unpackhi_epi64(most[2 * t], most[2 * t + 1]));
    const Bits all = max(_mm256_permute2x128_si256(most[0], most[1], 0x20),
                         _mm256_permute2x128_si256(most[0], most[1], 0x31));
    return kSource == DType::f32 ? all : band(all, splat(0xFFFF0000u));
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

  // The values of sixteen codes of four bits, of which the last is the sign; and that of the lowest
  // code of each word, whatever is above it.
  static Bits nibble_table(const float* values) { return load_words(values); }
  static Bits nibble_value(Bits table, Bits words) {
    const Bits sign = band(_mm256_slli_epi32(words, 28), splat(0x80000000u));
    return bor(_mm256_permutevar8x32_epi32(table, words), sign);
  }

  // Eight rows of eight words.
  static void transpose(Bits (&r)[8]) {
    Bits t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
      r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
      r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
      r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x20);
      t[i + 4] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) r[i] = t[i];
  }

  static std::uint32_t largest(Bits a) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(m));
  }

  // Sixteen numbers brought down to four: (0 + 2) + (1 + 3) of their quarters.
  static __m128 four_sums(const Bits v[2]) {
    const __m256 halves = _mm256_add_ps(as_floats(v[0]), as_floats(v[1]));
    return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
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
  // The sums of as many vectors as a vector has lanes, while they are transposed.
  static void fsums(const Floats* v, float* to) {
    __m256 fours[2];  // of four vectors each, half of a sum in either half
    for (int i = 0; i < 2; ++i)
      fours[i] = _mm256_hadd_ps(_mm256_hadd_ps(v[4 * i], v[4 * i + 1]),
                                _mm256_hadd_ps(v[4 * i + 2], v[4 * i + 3]));
    _mm256_storeu_ps(to, _mm256_add_ps(_mm256_permute2f128_ps(fours[0], fours[1], 0x20),
                                       _mm256_permute2f128_ps(fours[0], fours[1], 0x31)));
  }
};

}  // namespace
}  // namespace octavo::cpu
