// One value to one code, constexpr, on host and device, for every format and policy, in integer
// arithmetic: the definition that all array kernels are held to. It does not depend on the
// floating-point environment (but for via_f32).
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/format/decode.h"
#include "octavo/format/format.h"
#include "octavo/round/policy.h"

namespace octavo {

struct Encoded {
  std::uint32_t code = 0;
  bool saturated = false;  // see Counts
  bool flushed = false;
  bool nan = false;
};

// Does this rounding move a value of this sign toward zero whenever it is inexact?
OCTAVO_HD constexpr bool rounds_toward_zero(Rounding rounding, bool negative) {
  return rounding == Rounding::toward_zero || (rounding == Rounding::up && negative) ||
         (rounding == Rounding::down && !negative);
}

// The magnitude field of the largest finite value of a sign (two's complement reaches one further
// down).
OCTAVO_HD constexpr std::uint32_t limit_field(const Format& format, bool negative) {
  return format.max_field() + (format.twos_complement && negative ? 1 : 0);
}

OCTAVO_HD constexpr std::uint32_t signed_code(const Format& format, std::uint32_t field,
                                              bool negative) {
  if (format.twos_complement) return (negative ? 0u - field : field) & format.code_mask();
  if (field == 0 && !format.has_negative_zero()) return 0;
  return field | (negative ? format.sign_mask() : 0);
}

// The code a NaN input becomes. NanInput::error is the caller's to refuse; here it acts as zero.
OCTAVO_HD constexpr std::uint32_t nan_input_code(const Format& format, const EncodePolicy& policy,
                                                 bool negative) {
  const bool keeps_sign = policy.nan_code != NanCode::positive_ones;
  const std::uint32_t sign = keeps_sign && negative ? format.sign_mask() : 0;
  switch (format.nan) {
    case Nan::negative_zero:
      return format.sign_mask();
    case Nan::all_ones:
      return sign | format.magnitude_mask();
    case Nan::ieee: {
      const bool quiet = policy.nan_code == NanCode::signed_quiet;
      const std::uint32_t mantissa =
          quiet ? 1u << (format.mantissa_bits - 1) : format.mantissa_mask();
      return sign | (format.max_field() + 1) | mantissa;
    }
    case Nan::none:
      break;
  }
  if (policy.nan_input == NanInput::max) return format.max_field();
  if (policy.nan_input == NanInput::negated_zero && !negative) return signed_code(format, 0, true);
  return 0;
}

// The code of a value beyond the range: `infinite` tells Inf inputs from finite ones.
OCTAVO_HD constexpr std::uint32_t overflow_code(const Format& format, const EncodePolicy& policy,
                                                bool negative, bool infinite) {
  const bool beyond_is_special = format.has_inf || format.has_nan();
  bool special = false;
  switch (policy.overflow) {
    case Overflow::saturate:
      break;
    case Overflow::propagate:
      special = infinite && format.has_inf;
      break;
    case Overflow::saturate_finite:
      special = infinite && beyond_is_special;
      break;
    case Overflow::ieee:
      special = beyond_is_special && (infinite || !rounds_toward_zero(policy.rounding, negative));
      break;
  }
  // One above the largest field stands Inf, else NaN (format.h). In a format whose NaN takes the
  // place of minus zero that carry is the sign bit itself, so the sign must not be added to it.
  if (special && format.nan == Nan::negative_zero) return format.sign_mask();
  return signed_code(format, special ? format.max_field() + 1 : limit_field(format, negative),
                     negative);
}

OCTAVO_HD constexpr Encoded encode_value(const Format& format, double value,
                                         const EncodePolicy& policy = {},
                                         std::uint32_t random = 0) {
  if (policy.via_f32) value = static_cast<double>(static_cast<float>(value));
  constexpr std::uint64_t kInf = 0x7FF0000000000000u;
  const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, value);
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  bool negative = bits != magnitude;

  if (magnitude > kInf) return {.code = nan_input_code(format, policy, negative), .nan = true};
  if (negative && !format.is_signed) {
    negative = false;
    if (magnitude != 0 && policy.negative_input == NegativeInput::clamp)
      return {.code = 0, .saturated = true};
    if (magnitude != 0 && policy.negative_input == NegativeInput::nan) {
      return {.code = format.has_nan() ? format.magnitude_mask() : 0, .saturated = true};
    }
  }
  if (magnitude == kInf)
    return {.code = overflow_code(format, policy, negative, true), .saturated = true};
  if (magnitude == 0) {
    if (format.has_zero) return {.code = signed_code(format, 0, negative)};
    return {.code = policy.zero_input == ZeroInput::nan && format.has_nan()
                        ? format.magnitude_mask()
                        : 0};
  }

  // value = significand * 2^(exponent - 52). Subnormal doubles need no care: no format reaches
  // there with its normal numbers, so their grid is the format's own smallest one.
  const int exponent_field = static_cast<int>(magnitude >> 52);
  const int exponent = exponent_field > 0 ? exponent_field - 1023 : -1022;
  const std::uint64_t significand = (magnitude & ((std::uint64_t{1} << 52) - 1)) |
                                    (exponent_field > 0 ? std::uint64_t{1} << 52 : 0);
  const int binade = exponent > format.min_exponent() ? exponent : format.min_exponent();

  // In units of the format's spacing there: quotient + remainder / 2^shift. A shift past 60 bits
  // leaves quotient 0 and a remainder below a half, which 60 does as well.
  const int shift = 52 - format.mantissa_bits + (binade - exponent);
  const int near_shift = shift < 60 ? shift : 60;
  const std::uint64_t quotient = significand >> near_shift;
  const std::uint64_t remainder = significand & ((std::uint64_t{1} << near_shift) - 1);
  const std::uint64_t half = std::uint64_t{1} << (near_shift - 1);
  // Every binade above the smallest adds 2^mantissa_bits fields; a format without zero starts at
  // its smallest normal number.
  const std::int64_t base =
      (static_cast<std::int64_t>(binade - format.min_exponent()) << format.mantissa_bits) -
      (format.has_zero ? 0 : std::int64_t{1} << format.mantissa_bits);
  std::int64_t field = static_cast<std::int64_t>(quotient) + base;
  switch (policy.rounding) {
    case Rounding::nearest_even:
      field += remainder > half || (remainder == half && (field & 1));
      break;
    case Rounding::nearest_away:
      field += remainder >= half;
      break;
    case Rounding::toward_zero:
      break;
    case Rounding::up:
      field += remainder > 0 && !negative;
      break;
    case Rounding::down:
      field += remainder > 0 && negative;
      break;
    case Rounding::to_odd:
      field += remainder > 0 && !(field & 1);
      break;
    case Rounding::stochastic: {
      const int drop = shift - policy.stochastic_bits;
      const std::uint64_t scaled = drop < 64 ? significand >> drop : 0;
      field = static_cast<std::int64_t>((scaled + random) >> policy.stochastic_bits) + base;
      break;
    }
  }
  if (field < 0) field = 0;  // below the smallest value of a format without zero
  if (policy.tiny_rounds_up && !format.has_zero && exponent == format.min_exponent() &&
      remainder > 0)
    field = 1;
  if (field > static_cast<std::int64_t>(limit_field(format, negative))) {
    return {.code = overflow_code(format, policy, negative, false), .saturated = true};
  }
  return {.code = signed_code(format, static_cast<std::uint32_t>(field), negative),
          .flushed = field == 0 && format.has_zero};
}

template <Format F>
OCTAVO_HD constexpr std::uint32_t encode(double value, const EncodePolicy& policy = {},
                                         std::uint32_t random = 0) {
  return encode_value(F, value, policy, random).code;
}

}  // namespace octavo
