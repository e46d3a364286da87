// Codes of sixteen rows of B to a panel of bf16 for AMX tiles, with the scales of MX blocks and
// NVFP4 tiles multiplied in, which is exact (gemm_scale_range.h). Decoding is a lookup in
// registers: byte planes for codes of up to eight bits (avx512_vbmi/planes.h), one VPERMW for pairs
// of four bits.
//
// Panels of B are [k / 2][32 columns][2]: codes of sixteen rows are transposed as words of four
// bytes before they are decoded, half or a quarter of what transposing bf16 would move. Of 1024
// codes of eight bits 64 shuffles transpose and 80 decode, on the one port that shuffles: 0.14
// cycles a code; of four bits 64 and 128 for 2048 codes: 0.09. Packed weights need no transposing.
// Scales take six operations for 32 elements on two ports, powers of two two.
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

// Scales of sixteen rows for sixteen runs: [run][row].
class alignas(64) ScaleColumns {
 public:
  explicit ScaleColumns(const PackJob& job)
      : job_(job), shift_(std::countr_zero(static_cast<std::uint64_t>(job.run))) {}

  // Those from k on, where k begins sixteen runs.
  [[gnu::always_inline]] void load(int first_row, std::int64_t k) {
    if ((k & ((16LL << shift_) - 1)) != 0) return;
    const std::int64_t pitch = job_.n >> shift_, from = k >> shift_, left = pitch - from;
    const __mmask16 there = left >= 16 ? 0xFFFF : static_cast<__mmask16>((1U << left) - 1);
    __m512i r[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      r[i] = _mm512_maskz_loadu_epi32(there, job_.scales + (first_row + i) * pitch + from);
    transpose(r);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(at_[i], r[i]);
    if (!job_.powers) return;
    // The exponent twice in each word, where bf16 has it. Zero is beyond the edge.
    const __m512i bias = _mm512_set1_epi32(127), nan = _mm512_set1_epi32(0xFF);
    __mmask16 any_nan = 0;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m512i field = _mm512_srli_epi32(r[i], 23);
      any_nan = static_cast<__mmask16>(any_nan | _mm512_cmpeq_epi32_mask(field, nan));
      const __m512i power = _mm512_slli_epi32(_mm512_sub_epi32(field, bias), 7);
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
  float at_[16][16];
  std::int32_t powers_[16][16];
  bool all_powers_ = false;
  const PackJob& job_;
  int shift_;
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
// code's first.
template <const Format& kFormat>
struct PairTable {
  alignas(64) std::uint16_t at[32]{};

  constexpr PairTable() {
    for (std::uint32_t i = 0; i < 32; ++i)
      at[i] = static_cast<std::uint16_t>(
          encode_value(bf16_format, decode(kFormat, i & 15 & kFormat.magnitude_mask())).code |
          ((i & 15 & kFormat.sign_mask()) != 0 ? 0x8000u : 0));
  }
};
template <const Format& kFormat>
constexpr PairTable<kFormat> kPairTable;

// How words of four bytes are decoded: kCodes elements of sixteen columns give kCodes / 2 vectors
// of pairs.
template <const Format& kFormat>
struct ByteColumns {
  static constexpr int kCodes = 4;
  Planes<Bfloat, kFormat> planes;
  // In each 128-bit lane, four columns: the first two codes of each, then the other two.
  __m512i apart =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));

  [[gnu::always_inline]] void operator()(__m512i word, __m512i (&pairs)[2]) const {
    planes.in_lanes(_mm512_shuffle_epi8(word, apart), pairs);
  }
  // Is an Inf or NaN among the codes?
  [[gnu::always_inline]] static bool any_special(const __m512i (&words)[16], std::int64_t count) {
    constexpr std::uint32_t kSpecial = kFormat.max_field() + 1;
    if constexpr (kSpecial > kFormat.magnitude_mask()) return false;
    const __m512i mask = _mm512_set1_epi8(static_cast<char>(kFormat.magnitude_mask()));
    __m512i most = _mm512_setzero_si512();
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if (i >= count) break;
      most = _mm512_max_epu8(most, _mm512_and_si512(words[i], mask));
    }
    return _mm512_cmpge_epu8_mask(most, _mm512_set1_epi8(static_cast<char>(kSpecial))) != 0;
  }
};

template <const Format& kFormat>
struct NibbleColumns {
  static constexpr int kCodes = 8;
  __m512i table = _mm512_load_si512(kPairTable<kFormat>.at);
  __m512i shifts[4];  // pair j: one code to the lower half of a word, the next to the upper half

  NibbleColumns() {
    for (int j = 0; j < 4; ++j) {
      const auto low = static_cast<long long>(8 * j), high = low + 4;
      const long long pair = low | low << 8 | high << 16 | high << 24;
      shifts[j] = _mm512_set1_epi64(pair | (pair + 0x20202020LL) << 32);
    }
  }
  static bool any_special(const __m512i (&)[16], std::int64_t) {
    static_assert(kFormat.max_field() == kFormat.magnitude_mask());
    return false;
  }
  [[gnu::always_inline]] void operator()(__m512i word, __m512i (&pairs)[4]) const {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
      pairs[j] = _mm512_permutexvar_epi16(_mm512_multishift_epi64_epi8(shifts[j], word), table);
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
    // scale(pairs, k): of one word.
    const auto decode = [&](const auto& scale) __attribute__((always_inline)) {
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        if (i >= left) break;
        __m512i pairs[kCodes / 2];
        columns(r[i], pairs);
#pragma GCC unroll 4
        for (int j = 0; j < kCodes / 2; ++j) {
          _mm512_storeu_si512(to, scale(pairs[j], k + i * kCodes));
          to += kPanelCols * 4;
        }
      }
    };
    if constexpr (!kScaled) {
      decode([](__m512i pairs, std::int64_t) __attribute__((always_inline)) { return pairs; });
    } else if (scales.all_powers() && !Columns::any_special(r, left)) {
      decode([&](__m512i pairs, std::int64_t at)
                 __attribute__((always_inline)) { return times_power(pairs, scales.power(at)); });
    } else {
      decode([&](__m512i pairs, std::int64_t at)
                 __attribute__((always_inline)) { return times(pairs, scales(at)); });
    }
  }
}

}  // namespace
}  // namespace octavo::cpu
