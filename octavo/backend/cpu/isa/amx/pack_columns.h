// Codes of sixteen rows of B to a panel of bf16 for AMX tiles, with the scales of MX blocks and
// NVFP4 tiles multiplied in, which is exact (gemm_scale_range.h). Decoding is a lookup in
// registers: byte planes for codes of up to eight bits (avx512_vbmi/planes.h), one VPERMW for pairs
// of four bits.
//
// Panels of B are [k / 2][32 columns][2]: codes of sixteen rows are transposed as words of four
// bytes before they are decoded, half or a quarter of what transposing bf16 would move. Of 1024
// codes of eight bits 64 shuffles transpose and 80 decode, on the one port that shuffles: 0.14
// cycles a code; of four bits 64 and 128 for 2048 codes: 0.09. Packed weights need no transposing.
// Scales take six operations for 32 elements on two ports; powers of two take two, and one where
// codes have four bits.
#pragma once

#include <immintrin.h>

#include <bit>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/avx512/bf16_pairs.h"
#include "octavo/backend/cpu/isa/avx512/transpose16.h"
#include "octavo/backend/cpu/isa/avx512_vbmi/planes.h"
#include "octavo/base/fp_env.h"

namespace octavo::cpu {
namespace {

constexpr int kPanelCols = 32, kPanelHalf = 16;

// Pairs of bf16 in words, times the scale of each word. Products are exact in bf16: what is cut off
// is zero.
[[gnu::always_inline]] inline __m512i times(__m512i pairs, __m512 scale) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __m512i low =
      _mm512_srli_epi32(_mm512_castps_si512(_mm512_mul_ps(even_of(pairs), scale)), 16);
  const __m512i high = _mm512_castps_si512(_mm512_mul_ps(odd_of(pairs), scale));
  return _mm512_ternarylogic_epi32(low, high, upper, 0xF8);  // low | (high & upper)
}

// The same for powers of two, as what is added to exponents: a third of the operations. Zeros stay
// zeros; there is neither Inf nor NaN.
[[gnu::always_inline]] inline __m512i times_power(__m512i pairs, __m512i power) {
  const __mmask32 numbers = _mm512_test_epi16_mask(pairs, _mm512_set1_epi16(0x7FFF));
  return _mm512_mask_add_epi16(pairs, numbers, pairs, power);
}
// One operation, where exponents are kLift above what they are and zero has no sign: zeros
// saturate. Powers that are applied to elements are far below 2^kLift (gemm_scale_range.cc).
constexpr int kLift = 64;
[[gnu::always_inline]] inline __m512i lower_by(__m512i lifted, __m512i power) {
  return _mm512_subs_epu16(lifted, power);
}

// Sixteen codes of e4m3 as f32.
[[gnu::always_inline]] inline __m512i e4m3_values(__m512i codes) {
  const __m512i field = _mm512_and_si512(codes, _mm512_set1_epi32(0x7F));
  const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(codes, _mm512_set1_epi32(0x80)), 24);
  const __m512i bias = _mm512_set1_epi32((127 - 7) << 23);
  const __m512 small = _mm512_mul_ps(_mm512_cvtepi32_ps(field), _mm512_set1_ps(0x1p-9F));
  __m512i values = _mm512_add_epi32(_mm512_slli_epi32(field, 20), bias);
  values = _mm512_mask_mov_epi32(values, _mm512_cmpgt_epi32_mask(_mm512_set1_epi32(8), field),
                                 _mm512_castps_si512(small));
  values = _mm512_mask_mov_epi32(values, _mm512_cmpeq_epi32_mask(field, _mm512_set1_epi32(0x7F)),
                                 _mm512_set1_epi32(0x7FC00000));
  return _mm512_or_si512(values, sign);
}
// And of e8m0: 0 is 2^-127, and 255 is NaN.
[[gnu::always_inline]] inline __m512i e8m0_values(__m512i codes) {
  const __m512i values = _mm512_slli_epi32(codes, 23);
  return _mm512_mask_mov_epi32(
      _mm512_mask_mov_epi32(values, _mm512_cmpeq_epi32_mask(codes, _mm512_setzero_si512()),
                            _mm512_set1_epi32(0x00400000)),
      _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255)), _mm512_set1_epi32(0x7FC00000));
}

// Scales of sixteen rows for sixteen runs: [run][row].
class alignas(64) ScaleColumns {
 public:
  // lift: powers are what is subtracted from exponents that are so much above their own; 0: what is
  // added to them.
  ScaleColumns(const PackJob& job, int lift)
      : job_(job), lift_(lift), shift_(std::countr_zero(static_cast<std::uint64_t>(job.run))) {}

  // Those from k on, where k begins sixteen runs.
  [[gnu::always_inline]] void load(int first_row, std::int64_t k) {
    if ((k & ((16LL << shift_) - 1)) != 0) return;
    const std::int64_t from = k >> shift_;
    __m512i r[16];
    job_.scale_codes != nullptr ? load_codes(first_row, from, r) : load_values(first_row, from, r);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(at_[i], r[i]);
    if (!job_.powers) return;
    // The exponent twice in each word, where bf16 has it. Zero is beyond the edge.
    const __m512i bias = _mm512_set1_epi32(127 + lift_), nan = _mm512_set1_epi32(0xFF);
    __mmask16 any_nan = 0;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m512i field = _mm512_srli_epi32(r[i], 23);
      any_nan = static_cast<__mmask16>(any_nan | _mm512_cmpeq_epi32_mask(field, nan));
      const __m512i amount =
          lift_ != 0 ? _mm512_sub_epi32(bias, field) : _mm512_sub_epi32(field, bias);
      const __m512i power = _mm512_slli_epi32(amount, 7);
      _mm512_store_si512(powers_[i],
                         _mm512_mask_blend_epi16(0xAAAAAAAA, power, _mm512_slli_epi32(power, 16)));
    }
    all_powers_ = any_nan == 0;
  }
  // Are those that are loaded powers of two, without NaN?
  [[nodiscard]] [[gnu::always_inline]] bool all_powers() const { return all_powers_; }
  [[gnu::always_inline]] __m512i power(std::int64_t k) const {
    return _mm512_load_si512(powers_[k >> shift_ & 15]);
  }
  [[gnu::always_inline]] __m512 operator()(std::int64_t k) const {
    return _mm512_load_ps(at_[k >> shift_ & 15]);
  }

 private:
  static __mmask16 first_of(std::int64_t count) {
    return count >= 16 ? 0xFFFF : static_cast<__mmask16>((1U << (count > 0 ? count : 0)) - 1);
  }
  [[gnu::always_inline]] void load_values(int first_row, std::int64_t from,
                                          __m512i (&r)[16]) const {
    const std::int64_t pitch = job_.n >> shift_;
    const __mmask16 there = first_of(pitch - from);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      r[i] = _mm512_maskz_loadu_epi32(there, job_.scales + (first_row + i) * pitch + from);
    transpose(r);
  }
  [[gnu::always_inline]] void load_codes(int first_row, std::int64_t from, __m512i (&r)[16]) const {
    const __mmask16 there = first_of(job_.scales_there - from);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      r[i] =
          _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(there, job_.scale_codes[first_row + i] + from));
    transpose(r);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) r[i] = job_.powers ? e8m0_values(r[i]) : e4m3_values(r[i]);
  }

  float at_[16][16];
  std::int32_t powers_[16][16];
  bool all_powers_ = false;
  const PackJob& job_;
  int lift_, shift_;
};

// Where codes are: in rows, or in packed weights.
enum class CodesIn { rows, panels };

// Up to 64 bytes of sixteen rows, as sixteen vectors of four bytes of each row. Packed weights are
// in that order.
template <CodesIn kIn>
[[gnu::always_inline]] inline void load_words(const PackJob& job, int half, std::int64_t byte,
                                              std::int64_t words, __m512i (&r)[16]) {
  if constexpr (kIn == CodesIn::panels) {
    const std::uint8_t* from = job.words + byte * kPanelCols + half * 4;
    if (words >= 16) {
      constexpr std::int64_t kPanelAhead = 4096;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        r[i] = _mm512_loadu_si512(from + i * kPanelCols * 4);
        _mm_prefetch(from + i * kPanelCols * 4 + kPanelAhead, _MM_HINT_T0);
      }
      return;
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      r[i] = i < words ? _mm512_loadu_si512(from + i * kPanelCols * 4) : _mm512_setzero_si512();
    return;
  }
  constexpr std::int64_t kAhead = 512;
  const std::uint8_t* const* rows = job.rows + half;
  const __mmask16 there = words >= 16 ? 0xFFFF : static_cast<__mmask16>((1U << words) - 1);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    r[i] = _mm512_maskz_loadu_epi32(there, rows[i] + byte);
    _mm_prefetch(rows[i] + byte + kAhead, _MM_HINT_T0);
  }
  transpose(r);
}

// The values of sixteen codes, twice: VPERMW takes five bits of an index, and the fifth is the next
// code's first. kLifted: exponents are so much above their own, and zero has no sign, which adds
// nothing to sums.
template <const Format& kFormat, int kLifted = 0>
struct PairTable {
  alignas(64) std::uint16_t at[32]{};

  constexpr PairTable() {
    for (std::uint32_t i = 0; i < 32; ++i) {
      const std::uint32_t field = i & 15 & kFormat.magnitude_mask();
      if (kLifted != 0 && field == 0) continue;
      at[i] = static_cast<std::uint16_t>(
          (encode_value(bf16_format, decode(kFormat, field)).code + (kLifted << 7)) |
          ((i & 15 & kFormat.sign_mask()) != 0 ? 0x8000u : 0));
    }
  }
};
template <const Format& kFormat, int kLifted = 0>
constexpr PairTable<kFormat, kLifted> kPairTable;

// How words of four bytes are decoded: kCodes elements of sixteen columns give kCodes / 2 vectors
// of pairs. Formats are tables, so that kernels are compiled for few types.
template <bool kEightBits>
struct ByteColumns {
  static constexpr int kCodes = 4, kLift = 0;
  BytePlanes<kEightBits> planes;
  int magnitude_mask, special;  // the least magnitude that is Inf or NaN, or a larger one
  // In each 128-bit lane, four columns: the first two codes of each, then the other two.
  __m512i apart =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));

  [[gnu::always_inline]] void operator()(__m512i word, __m512i (&pairs)[2]) const {
    planes.in_lanes(_mm512_shuffle_epi8(word, apart), pairs);
  }
  [[gnu::always_inline]] void with_power(__m512i word, __m512i power, __m512i (&pairs)[2]) const {
    (*this)(word, pairs);
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) pairs[j] = times_power(pairs[j], power);
  }
  template <const Format& kFormat>
  static ByteColumns of() {
    static_assert(kEightBits == (kFormat.bits() == 8));
    return {Planes<Bfloat, kFormat>(), static_cast<int>(kFormat.magnitude_mask()),
            static_cast<int>(kFormat.max_field() + 1)};
  }
  // Is an Inf or NaN among the codes?
  [[gnu::always_inline]] bool any_special(const __m512i (&words)[16], std::int64_t count) const {
    if constexpr (!kEightBits) return false;
    const __m512i mask = _mm512_set1_epi8(static_cast<char>(magnitude_mask));
    __m512i most = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if (i >= count) break;
      most = _mm512_max_epu8(most, _mm512_and_si512(words[i], mask));
    }
    return _mm512_cmpge_epu8_mask(most, _mm512_set1_epi8(static_cast<char>(special))) != 0;
  }
};

struct NibbleColumns {
  static constexpr int kCodes = 8, kLift = cpu::kLift;
  __m512i table, lifted;
  __m512i shifts[4];  // pair j: one code to the lower half of a word, the next to the upper half

  NibbleColumns(const std::uint16_t* values, const std::uint16_t* lifted_values)
      : table(_mm512_load_si512(values)), lifted(_mm512_load_si512(lifted_values)) {
    for (int j = 0; j < 4; ++j) {
      const auto low = static_cast<long long>(8 * j), high = low + 4;
      const long long pair = low | low << 8 | high << 16 | high << 24;
      shifts[j] = _mm512_set1_epi64(pair | (pair + 0x20202020LL) << 32);
    }
  }
  template <const Format& kFormat>
  static NibbleColumns of() {
    static_assert(kFormat.bits() == 4 && kFormat.max_field() == kFormat.magnitude_mask());
    return {kPairTable<kFormat>.at, kPairTable<kFormat, kLift>.at};
  }
  static bool any_special(const __m512i (&)[16], std::int64_t) { return false; }
  [[gnu::always_inline]] void operator()(__m512i word, __m512i (&pairs)[4]) const {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) pairs[j] = _mm512_permutexvar_epi16(pair(word, j), table);
  }
  [[gnu::always_inline]] void with_power(__m512i word, __m512i power, __m512i (&pairs)[4]) const {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
      pairs[j] = lower_by(_mm512_permutexvar_epi16(pair(word, j), lifted), power);
  }

 private:
  [[gnu::always_inline]] __m512i pair(__m512i word, int j) const {
    return _mm512_multishift_epi64_epi8(shifts[j], word);
  }
};

// Elements from `first` to `last` of sixteen columns, to the start of the panel. `first` begins
// sixteen words, and sixteen runs where it is not in those that `scales` has.
template <bool kScaled, CodesIn kIn, typename Columns>
[[gnu::always_inline]] inline void pack_columns(const PackJob& job, int half, std::int64_t first,
                                                std::int64_t last, const Columns& columns,
                                                ScaleColumns& scales, std::byte* panel) {
  constexpr int kCodes = Columns::kCodes;
  for (std::int64_t k = first; k < last; k += 16 * kCodes) {
    if constexpr (kScaled) scales.load(half, k);
    const std::int64_t left = (last - k) / kCodes;
    __m512i r[16];
    load_words<kIn>(job, half, k * 4 / kCodes, left, r);
    std::byte* to = panel + ((k - first) / 2 * kPanelCols + half) * 4;
    // decode(word, k, pairs).
    const auto each = [&](const auto& decode) __attribute__((always_inline)) {
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        if (i >= left) break;
        __m512i pairs[kCodes / 2];
        decode(r[i], k + i * kCodes, pairs);
#pragma GCC unroll 4
        for (int j = 0; j < kCodes / 2; ++j) {
          _mm512_storeu_si512(to, pairs[j]);
          to += kPanelCols * 4;
        }
      }
    };
    using Pairs = __m512i[kCodes / 2];
    if constexpr (!kScaled) {
      each([&](__m512i word, std::int64_t, Pairs & pairs)
               __attribute__((always_inline)) { columns(word, pairs); });
    } else if (scales.all_powers() && !columns.any_special(r, left)) {
      each([&](__m512i word, std::int64_t at, Pairs & pairs) __attribute__((always_inline)) {
        columns.with_power(word, scales.power(at), pairs);
      });
    } else {
      each([&](__m512i word, std::int64_t at, Pairs & pairs) __attribute__((always_inline)) {
        columns(word, pairs);
        const __m512 scale = scales(at);
#pragma GCC unroll 4
        for (__m512i& pair : pairs) pair = times(pair, scale);
      });
    }
  }
}

}  // namespace
}  // namespace octavo::cpu
