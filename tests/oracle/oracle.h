// The conversion oracle: what every conversion must give, computed without the library's code.
//
// A format is the sorted list of all its values, enumerated from its definition as exact numbers
// integer * 2^exponent. A value is located between two neighbours by exact integer comparison, and
// a rule as it stands in the specification picks one. No shifting of codes, no tricks: slow and
// obvious.
//
// Only the names of the choices (octavo/round/policy.h) are shared with the library.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "octavo/round/policy.h"
#include "tests/oracle/format_table.h"

namespace oracle {

using octavo::EncodePolicy;
using octavo::NanCode;
using octavo::NanInput;
using octavo::NegativeInput;
using octavo::Overflow;
using octavo::Rounding;
using octavo::ZeroInput;

// integer * 2^exponent, never negative.
struct Exact {
  __extension__ typedef __int128 Wide;
  Wide integer = 0;
  int exponent = 0;

  static Exact of(double magnitude) {
    int exponent = 0;
    const double fraction =
        std::frexp(magnitude, &exponent);  // exact, and 53 bits make it an integer
    return {static_cast<Wide>(std::ldexp(fraction, 53)), exponent - 53};
  }

  // Exactly a * b, both finite: the integers without trailing zeros have at most 53 bits.
  static Exact product(double a, double b) {
    Exact x = of(std::fabs(a)), y = of(std::fabs(b));
    for (Exact* one : {&x, &y}) {
      while (one->integer != 0 && one->integer % 2 == 0) {
        one->integer /= 2;
        ++one->exponent;
      }
    }
    return {x.integer * y.integer, x.exponent + y.exponent};
  }

  // The position of the highest bit.
  [[nodiscard]] int top() const {
    const auto high = static_cast<std::uint64_t>(integer >> 64),
               low = static_cast<std::uint64_t>(integer);
    return (high != 0 ? 64 + std::bit_width(high) : std::bit_width(low)) + exponent;
  }
};

// -1, 0, 1 as a is below, equal to or above b. Numbers of equal top bit are less than 2^60 apart in
// exponent (no operand has more than 60 bits), so that alignment fits in 128 bits.
inline int compare(const Exact& a, const Exact& b) {
  if (a.integer == 0 || b.integer == 0) return (a.integer != 0) - (b.integer != 0);
  if (a.top() != b.top()) return a.top() < b.top() ? -1 : 1;
  const int low = std::min(a.exponent, b.exponent);
  const Exact::Wide left = a.integer << (a.exponent - low), right = b.integer << (b.exponent - low);
  return left < right ? -1 : left > right ? 1 : 0;
}

// b - a for a <= b, where either a is zero or b is at most a few times a.
inline Exact difference(const Exact& a, const Exact& b) {
  if (a.integer == 0) return b;
  const int low = std::min(a.exponent, b.exponent);
  return {(b.integer << (b.exponent - low)) - (a.integer << (a.exponent - low)), low};
}

inline Exact halfway(const Exact& a, const Exact& b) {
  const int low = std::min(a.exponent, b.exponent);
  const Exact::Wide left = a.integer == 0 ? 0 : a.integer << (a.exponent - low);
  const Exact::Wide right = b.integer == 0 ? 0 : b.integer << (b.exponent - low);
  return {left + right, low - 1};
}

enum class Kind : std::uint8_t { number, inf, nan };

// One code: what it is, and its value where it is a number.
struct Meaning {
  Kind kind = Kind::number;
  bool negative = false;  // the sign of NaN, Inf and zero too
  double value = 0;
};

struct Result {
  std::uint32_t code = 0;
  bool saturated = false, flushed = false, nan = false;
  bool operator==(const Result&) const = default;
};

// Where an input lies on the ladder of magnitudes of its sign.
struct Place {
  enum class Half : std::uint8_t { exact, below, tie, above };
  bool nan = false, infinite = false, negative = false, zero = false;
  bool under = false;          // below the smallest value of a format without zero
  std::size_t step = 0;        // the largest magnitude not above the input
  Half half = Half::exact;     // the input's side of the middle to the next one
  std::uint32_t fraction = 0;  // floor(2^16 * (input - step) / (next - step))
};

class Oracle {
 public:
  explicit Oracle(const FormatRow& row);

  [[nodiscard]] const FormatRow& row() const { return row_; }
  [[nodiscard]] const std::vector<Meaning>& meanings() const { return meanings_; }
  [[nodiscard]] Place locate(double value) const;
  [[nodiscard]] Place locate(const Exact& magnitude, bool negative) const;
  // `random` are the draws of stochastic rounding, policy.stochastic_bits of them.
  [[nodiscard]] Result choose(const Place& place, const EncodePolicy& policy,
                              std::uint32_t random = 0) const;
  [[nodiscard]] Result encode(double value, const EncodePolicy& policy,
                              std::uint32_t random = 0) const {
    return choose(locate(policy.via_f32 ? static_cast<double>(static_cast<float>(value)) : value),
                  policy, random);
  }
  // All magnitudes of one sign and what stands between them: every grid value, every middle, and
  // the first value beyond the range with the middle before it, as far as they are doubles.
  [[nodiscard]] std::vector<double> landmarks() const;

 private:
  [[nodiscard]] Result beyond(bool negative, bool infinite, const EncodePolicy& policy) const;
  [[nodiscard]] Result nan_result(bool negative, const EncodePolicy& policy) const;
  [[nodiscard]] std::uint32_t code_at(std::size_t step, bool negative) const;
  [[nodiscard]] std::size_t last(bool negative) const {
    return last_ + (row_.integer && negative ? 1 : 0);
  }

  FormatRow row_;
  // Magnitudes in ascending order; step i has the magnitude code i. One more than the largest
  // finite value (two for integers, whose negative side is longer): where rounding goes when there
  // is no limit.
  std::vector<Exact> ladder_;
  std::size_t last_ = 0;
  std::vector<Meaning> meanings_;
};

inline Oracle::Oracle(const FormatRow& row) : row_(row) {
  const std::uint32_t magnitudes = 1u << row.magnitude_bits();
  const std::uint32_t per_binade = 1u << row.mantissa_bits;
  const auto exact_of = [&](std::uint32_t field) -> Exact {
    if (row.integer) return {static_cast<Exact::Wide>(field), 1 - row.bias - row.mantissa_bits};
    const std::uint32_t exponent = field / per_binade, mantissa = field % per_binade;
    if (exponent == 0 && !row.no_zero)
      return {static_cast<Exact::Wide>(mantissa), 1 - row.bias - row.mantissa_bits};
    return {static_cast<Exact::Wide>(per_binade + mantissa),
            static_cast<int>(exponent) - row.bias - row.mantissa_bits};
  };
  const auto kind_of = [&](std::uint32_t field) {
    if (row.top == Top::inf_and_nan && field / per_binade == (1u << row.exponent_bits) - 1) {
      return field % per_binade == 0 ? Kind::inf : Kind::nan;
    }
    return row.top == Top::one_nan && field == magnitudes - 1 ? Kind::nan : Kind::number;
  };
  std::uint32_t field = 0;
  while (field < magnitudes && kind_of(field) == Kind::number) ladder_.push_back(exact_of(field++));
  last_ = ladder_.size() - 1;
  ladder_.push_back(exact_of(field));
  if (row.integer) ladder_.push_back(exact_of(field + 1));

  for (std::uint32_t code = 0; code < magnitudes << (row.is_signed ? 1 : 0); ++code) {
    Meaning meaning;
    meaning.negative = code >= magnitudes;
    if (row.minus_zero_is_nan && code == magnitudes) {
      meaning = {Kind::nan, false, 0};
    } else if (row.integer && meaning.negative) {
      meaning.value =
          -std::ldexp(static_cast<double>(2 * magnitudes - code), 1 - row.bias - row.mantissa_bits);
    } else {
      meaning.kind = kind_of(code % magnitudes);
      const Exact exact = exact_of(code % magnitudes);
      if (meaning.kind == Kind::number)
        meaning.value = std::ldexp(static_cast<double>(exact.integer), exact.exponent);
      if (meaning.negative) meaning.value = -meaning.value;
    }
    meanings_.push_back(meaning);
  }
}

inline Place Oracle::locate(double value) const {
  Place place;
  place.negative = std::signbit(value);
  place.nan = value != value;
  place.infinite = std::fabs(value) == std::numeric_limits<double>::infinity();
  place.zero = value == 0;
  if (place.nan || place.infinite || place.zero) return place;
  return locate(Exact::of(std::fabs(value)), place.negative);
}

inline Place Oracle::locate(const Exact& exact, bool negative) const {
  Place place;
  place.negative = negative;
  if (compare(exact, ladder_.front()) < 0) {
    place.under = true;
    return place;
  }
  std::size_t low = 0, high = ladder_.size();  // ladder[low] <= exact, and ladder[high] is above it
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    (compare(ladder_[middle], exact) <= 0 ? low : high) = middle;
  }
  place.step = low;
  if (low + 1 == ladder_.size()) return place;  // beyond: which side of a middle does not matter
  if (compare(exact, ladder_[low]) == 0) return place;
  const int side = compare(exact, halfway(ladder_[low], ladder_[low + 1]));
  place.half = side < 0 ? Place::Half::below : side == 0 ? Place::Half::tie : Place::Half::above;
  const Exact part = difference(ladder_[low], exact),
              gap = difference(ladder_[low], ladder_[low + 1]);
  const int shift = part.exponent + 16 - gap.exponent;
  const Exact::Wide scaled = shift >= 0     ? part.integer << shift
                             : shift > -120 ? part.integer >> -shift
                                            : 0;
  place.fraction = static_cast<std::uint32_t>(scaled / gap.integer);
  return place;
}

inline std::uint32_t Oracle::code_at(std::size_t step, bool negative) const {
  const auto field = static_cast<std::uint32_t>(step);
  const std::uint32_t sign = 1u << row_.magnitude_bits();
  if (!negative || !row_.is_signed) return field;
  if (row_.integer) return field == 0 ? 0 : 2 * sign - field;
  if (field == 0 && row_.minus_zero_is_nan) return 0;
  return sign + field;
}

inline Result Oracle::nan_result(bool negative, const EncodePolicy& policy) const {
  const std::uint32_t sign = 1u << row_.magnitude_bits(), ones = sign - 1;
  std::uint32_t code = 0;
  if (row_.minus_zero_is_nan) {
    code = sign;
  } else if (row_.top != Top::all_numbers) {
    code = ones;
    if (policy.nan_code == NanCode::signed_quiet && row_.top == Top::inf_and_nan) {
      code = ones - ((1u << row_.mantissa_bits) - 1) + (1u << (row_.mantissa_bits - 1));
    }
    if (negative && row_.is_signed && policy.nan_code != NanCode::positive_ones) code += sign;
  } else if (policy.nan_input == NanInput::max) {
    code = static_cast<std::uint32_t>(last_);
  } else if (policy.nan_input == NanInput::negated_zero) {
    code = !negative && row_.is_signed && !row_.integer ? sign : 0;
  }
  return {.code = code, .nan = true};
}

inline Result Oracle::beyond(bool negative, bool infinite, const EncodePolicy& policy) const {
  const bool has_inf = row_.top == Top::inf_and_nan;
  const bool has_nan = row_.top != Top::all_numbers || row_.minus_zero_is_nan;
  const bool toward_zero = policy.rounding == Rounding::toward_zero ||
                           (policy.rounding == Rounding::up && negative) ||
                           (policy.rounding == Rounding::down && !negative);
  bool special = false;
  if (policy.overflow == Overflow::propagate) special = infinite && has_inf;
  if (policy.overflow == Overflow::saturate_finite) special = infinite;
  if (policy.overflow == Overflow::ieee) special = infinite || !toward_zero;
  std::uint32_t code = code_at(last(negative), negative);
  if (special && has_inf) code = code_at(last_ + 1, negative);
  if (special && !has_inf && has_nan) {
    code = row_.minus_zero_is_nan ? 1u << row_.magnitude_bits()
                                  : code_at((1u << row_.magnitude_bits()) - 1, negative);
  }
  return {.code = code, .saturated = true};
}

inline Result Oracle::choose(const Place& place, const EncodePolicy& policy,
                             std::uint32_t random) const {
  if (place.nan) return nan_result(place.negative, policy);
  bool negative = place.negative;
  if (negative && !row_.is_signed) {
    negative = false;
    const bool has_nan = row_.top != Top::all_numbers;
    if (!place.zero && policy.negative_input == NegativeInput::clamp)
      return {.code = 0, .saturated = true};
    if (!place.zero && policy.negative_input == NegativeInput::nan) {
      return {.code = has_nan ? (1u << row_.magnitude_bits()) - 1 : 0, .saturated = true};
    }
  }
  if (place.infinite) return beyond(negative, true, policy);
  if (place.zero) {
    if (!row_.no_zero) return {.code = code_at(0, negative)};
    const bool has_nan = row_.top != Top::all_numbers;
    return {.code = policy.zero_input == ZeroInput::nan && has_nan
                        ? (1u << row_.magnitude_bits()) - 1
                        : 0};
  }
  if (place.under) return {.code = 0};

  const bool inexact = place.half != Place::Half::exact;
  const bool odd = place.step % 2 != 0;
  bool away = false;
  switch (policy.rounding) {
    case Rounding::nearest_even:
      away = place.half == Place::Half::above || (place.half == Place::Half::tie && odd);
      break;
    case Rounding::nearest_away:
      away = place.half == Place::Half::above || place.half == Place::Half::tie;
      break;
    case Rounding::toward_zero:
      break;
    case Rounding::up:
      away = inexact && !negative;
      break;
    case Rounding::down:
      away = inexact && negative;
      break;
    case Rounding::to_odd:
      away = inexact && !odd;
      break;
    case Rounding::stochastic:  // P3109 variant A
      away = (place.fraction >> (16 - policy.stochastic_bits)) + random >=
             1u << policy.stochastic_bits;
      break;
  }
  if (policy.tiny_rounds_up && row_.no_zero && place.step == 0 && inexact) away = true;
  const std::size_t step = place.step + (away ? 1 : 0);
  if (step > last(negative)) return beyond(negative, false, policy);
  return {.code = code_at(step, negative), .flushed = step == 0 && !row_.no_zero};
}

inline std::vector<double> Oracle::landmarks() const {
  std::vector<double> marks;
  const auto add = [&](const Exact& exact) {
    const double value = std::ldexp(static_cast<double>(exact.integer), exact.exponent);
    if (std::isfinite(value)) marks.push_back(value);
  };
  for (std::size_t i = 0; i < ladder_.size(); ++i) {
    add(ladder_[i]);
    if (i + 1 < ladder_.size()) add(halfway(ladder_[i], ladder_[i + 1]));
  }
  // Formats without zero: half of the smallest value is where a naive encoder would flush.
  if (row_.no_zero) add({ladder_[0].integer, ladder_[0].exponent - 1});
  return marks;
}

// The 16-bit types as sources, from their own definitions.
inline double value_of_f16(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double value = exponent == 31 ? (mantissa == 0 ? INFINITY : NAN)
                                : std::ldexp(exponent == 0 ? mantissa : 1024 + mantissa,
                                             (exponent == 0 ? 1 : exponent) - 25);
  return std::copysign(value, bits >> 15 ? -1.0 : 1.0);
}

inline double value_of_bf16(std::uint16_t bits) {
  const int exponent = bits >> 7 & 255, mantissa = bits & 127;
  double value = exponent == 255 ? (mantissa == 0 ? INFINITY : NAN)
                                 : std::ldexp(exponent == 0 ? mantissa : 128 + mantissa,
                                              (exponent == 0 ? 1 : exponent) - 134);
  return std::copysign(value, bits >> 15 ? -1.0 : 1.0);
}

}  // namespace oracle
