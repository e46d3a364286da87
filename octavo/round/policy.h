// EncodePolicy: rounding mode, overflow, NaN, negative and zero handling. No scale is involved. The
// defaults (nearest even, saturate) are the same in C++, in Python and on the command line.
#pragma once

#include <cstdint>

namespace octavo {

enum class Rounding : std::uint8_t {
  nearest_even,  // ties to the even code
  nearest_away,  // ties away from zero
  toward_zero,
  up,      // toward +infinity
  down,    // toward -infinity
  to_odd,  // the odd neighbour unless exact: makes a second, coarser rounding safe
  stochastic,
};

// A value overflows when, rounded as if the exponent had no upper limit, it lies beyond the largest
// finite value of its sign.
enum class Overflow : std::uint8_t {
  saturate,         // everything, Inf included, becomes the largest finite value (OFP8 "SAT")
  propagate,        // finite values saturate; Inf stays where the format has it, else saturates
  saturate_finite,  // finite values saturate; Inf becomes what `ieee` makes of it (ONNX)
  ieee,             // Inf, else NaN, else (formats with neither) the largest value (OFP8 "NONSAT").
         // As IEEE 754 section 7.4 has it, a finite value whose rounding direction points
         // to zero becomes the largest finite value instead.
};

// What NaN becomes in a format without NaN.
enum class NanInput : std::uint8_t {
  error,
  zero,
  max,
  negated_zero /* ml_dtypes: NaN -> -0, -NaN -> +0 */
};

// Which NaN code is written in a format with several.
enum class NanCode : std::uint8_t {
  signed_ones,    // sign kept, mantissa all ones
  positive_ones,  // sign dropped, mantissa all ones
  signed_quiet,   // sign kept, only the top mantissa bit set
};

// What a negative value becomes in an unsigned format.
enum class NegativeInput : std::uint8_t {
  clamp /* to the smallest value */,
  magnitude /* sign dropped */,
  nan
};

// What zero becomes in a format without zero (e8m0fnu).
enum class ZeroInput : std::uint8_t { smallest, nan };

inline constexpr int kMaxStochasticBits = 16;

struct EncodePolicy {
  Rounding rounding = Rounding::nearest_even;
  Overflow overflow = Overflow::saturate;
  NanInput nan_input = NanInput::error;
  NanCode nan_code = NanCode::signed_ones;
  NegativeInput negative_input = NegativeInput::clamp;
  ZeroInput zero_input = ZeroInput::smallest;
  // Formats without zero only: whatever lies between the two smallest values goes up. So torch and
  // ml_dtypes cast f32 subnormals to e8m0fnu: they round as though the smallest code were zero.
  bool tiny_rounds_up = false;
  bool via_f32 = false;  // f64 sources are first rounded to f32, as most peers do (rounds twice)

  // Stochastic rounding only; see round/stochastic.h. Element i of a call draws with index
  // first_index + i, so any split of the work gives the same result.
  std::uint64_t seed = 0;
  std::uint64_t first_index = 0;
  int stochastic_bits = 16;  // 1 .. kMaxStochasticBits

  constexpr bool operator==(const EncodePolicy&) const = default;
};

// Counts of an array conversion. `saturated` counts values beyond the range, whatever the policy
// made of them; `flushed` counts values other than zero that became zero; `nan` counts NaN inputs.
struct Counts {
  std::int64_t saturated = 0;
  std::int64_t flushed = 0;
  std::int64_t nan = 0;

  constexpr Counts& operator+=(const Counts& other) {
    saturated += other.saturated;
    flushed += other.flushed;
    nan += other.nan;
    return *this;
  }
  constexpr bool operator==(const Counts&) const = default;
};

}  // namespace octavo
