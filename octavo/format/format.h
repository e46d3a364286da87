// struct Format: the bit layout of a number format (exponent, mantissa, bias, special values) as
// data. A format is a value, never a class: it can be a template argument, a constant, a field of a
// view, or come from a string; everything else about it is derived here.
//
// Codes are right-aligned in an integer: [sign] exponent mantissa. The magnitude part of the code
// ("field") counts upwards with the value, so the next larger value is always the next integer.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"

namespace octavo {

enum class Nan : std::uint8_t {
  none,           // every code is a number (or Inf)
  ieee,           // exponent all ones, mantissa not zero
  all_ones,       // one magnitude: exponent and mantissa all ones
  negative_zero,  // one code: where minus zero would be
};

struct Format {
  std::uint8_t exponent_bits = 0;
  std::uint8_t mantissa_bits = 0;
  std::int16_t bias = 0;
  bool is_signed = true;
  bool has_inf = false;
  bool has_zero = true;        // false: the all-zero code is the power of two 2^-bias
  bool has_subnormals = true;  // false only together with has_zero = false
  // Without exponent bits: fixed point, an integer times 2^(1 - bias - mantissa_bits), in sign and
  // magnitude (e0m7) or in two's complement (mxint8, int8, int4).
  bool twos_complement = false;
  Nan nan = Nan::none;

  constexpr bool operator==(const Format&) const = default;

  OCTAVO_HD constexpr int magnitude_bits() const { return exponent_bits + mantissa_bits; }
  OCTAVO_HD constexpr int bits() const { return (is_signed ? 1 : 0) + magnitude_bits(); }
  OCTAVO_HD constexpr bool is_fixed_point() const { return exponent_bits == 0; }
  // A code is the integer itself, in a byte.
  OCTAVO_HD constexpr bool is_byte_integer() const { return twos_complement && bits() == 8; }
  // Bytes of one code when it is not packed.
  OCTAVO_HD constexpr int code_bytes() const { return bits() <= 8 ? 1 : 2; }

  OCTAVO_HD constexpr std::uint32_t code_mask() const { return (1u << bits()) - 1; }
  OCTAVO_HD constexpr std::uint32_t magnitude_mask() const { return (1u << magnitude_bits()) - 1; }
  OCTAVO_HD constexpr std::uint32_t sign_mask() const {
    return is_signed ? 1u << magnitude_bits() : 0;
  }
  OCTAVO_HD constexpr std::uint32_t mantissa_mask() const { return (1u << mantissa_bits) - 1; }

  OCTAVO_HD constexpr bool has_nan() const { return nan != Nan::none; }
  OCTAVO_HD constexpr bool has_negative_zero() const {
    return is_signed && has_zero && !twos_complement && nan != Nan::negative_zero;
  }

  // The exponent of the smallest normal number, and of the grid below it.
  OCTAVO_HD constexpr int min_exponent() const { return (has_zero ? 1 : 0) - bias; }
  // The exponent of the spacing between the smallest numbers.
  OCTAVO_HD constexpr int min_step_exponent() const { return min_exponent() - mantissa_bits; }

  // The magnitude field of the largest finite number. One above it stands Inf where the format has
  // it, else its NaN: all three NaN conventions agree on that, and encoders use it.
  OCTAVO_HD constexpr std::uint32_t max_field() const {
    if (nan == Nan::ieee || has_inf) return (((1u << exponent_bits) - 1) << mantissa_bits) - 1;
    if (nan == Nan::all_ones) return magnitude_mask() - 1;
    return magnitude_mask();
  }
};

}  // namespace octavo
