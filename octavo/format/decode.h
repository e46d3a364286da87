// The value of one code. Exact: every finite value of every format is a double (see
// format_problem).
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/format/format.h"

namespace octavo {

// 2^exponent for -1074 <= exponent <= 1023, usable in constant expressions and on devices.
OCTAVO_HD constexpr double power_of_two(int exponent) {
  const std::uint64_t bits = exponent >= -1022 ? static_cast<std::uint64_t>(exponent + 1023) << 52
                                               : std::uint64_t{1} << (exponent + 1074);
  return __builtin_bit_cast(double, bits);
}

OCTAVO_HD constexpr bool is_nan(const Format& format, std::uint32_t code) {
  const std::uint32_t field = code & format.magnitude_mask();
  switch (format.nan) {
    case Nan::ieee:
      return field > format.max_field() + 1;
    case Nan::all_ones:
      return field == format.magnitude_mask();
    case Nan::negative_zero:
      return code == format.sign_mask();
    case Nan::none:
      break;
  }
  return false;
}

OCTAVO_HD constexpr bool is_inf(const Format& format, std::uint32_t code) {
  return format.has_inf && (code & format.magnitude_mask()) == format.max_field() + 1;
}

// NaN codes give a quiet NaN that keeps the code's sign, except where the sign bit is the NaN.
OCTAVO_HD constexpr double decode(const Format& format, std::uint32_t code) {
  code &= format.code_mask();
  const bool negative = (code & format.sign_mask()) != 0;
  const std::uint64_t sign =
      negative && format.nan != Nan::negative_zero ? std::uint64_t{1} << 63 : 0;
  if (is_nan(format, code)) return __builtin_bit_cast(double, sign | 0x7FF8000000000000u);
  if (is_inf(format, code)) return __builtin_bit_cast(double, sign | 0x7FF0000000000000u);
  std::uint32_t field = code & format.magnitude_mask();
  if (format.twos_complement) {
    const int integer = static_cast<int>(field) - (negative ? 1 << format.magnitude_bits() : 0);
    return integer * power_of_two(format.min_step_exponent());
  }
  const int exponent_field = static_cast<int>(field >> format.mantissa_bits);
  std::uint32_t significand = field & format.mantissa_mask();
  int exponent = format.min_step_exponent();
  if (exponent_field > 0 || !format.has_zero) {
    significand |= 1u << format.mantissa_bits;
    exponent += exponent_field - (format.has_zero ? 1 : 0);
  }
  const double magnitude = significand * power_of_two(exponent);
  return negative ? -magnitude : magnitude;
}

template <Format F>
OCTAVO_HD constexpr double decode(std::uint32_t code) {
  return decode(F, code);
}

// Limits, as numeric_limits or finfo would name them.
OCTAVO_HD constexpr double max_value(const Format& format) {
  return decode(format, format.max_field());
}
OCTAVO_HD constexpr double lowest_value(const Format& format) {
  if (format.twos_complement) return decode(format, format.sign_mask());
  return format.is_signed ? -max_value(format) : decode(format, 0);
}
OCTAVO_HD constexpr double min_normal(const Format& format) {
  return power_of_two(format.is_fixed_point() ? format.min_step_exponent() : format.min_exponent());
}
// The smallest positive value; equals min_normal where a format has no subnormals.
OCTAVO_HD constexpr double min_positive(const Format& format) {
  return decode(format, format.has_zero ? 1 : 0);
}
// The distance from 1 to the next larger value of an unbounded grid of this precision.
OCTAVO_HD constexpr double epsilon(const Format& format) {
  return power_of_two(format.is_fixed_point() ? format.min_step_exponent() : -format.mantissa_bits);
}

}  // namespace octavo
