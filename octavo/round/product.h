// Exact products, for rounding once: product_to_odd(a, b) is a * b as a double that rounds, to any
// narrower type or format and in any direction, to what the exact product rounds to.
//
// The product is cut off after 53 bits and its last bit set if anything was cut off (round to odd).
// A second rounding to at most 51 bits sees on which side of a midpoint the product lies.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"

namespace octavo {

namespace product_detail {

__extension__ typedef unsigned __int128 Wide;

// A finite magnitude other than zero, as significand * 2^exponent with 53 bits.
struct Parts {
  std::uint64_t significand = 0;
  int exponent = 0;
};

OCTAVO_HD constexpr Parts parts_of(std::uint64_t magnitude) {
  constexpr std::uint64_t kTop = std::uint64_t{1} << 52;
  const int field = static_cast<int>(magnitude >> 52);
  Parts parts{magnitude & (kTop - 1), (field > 0 ? field : 1) - 1075};
  if (field > 0) parts.significand |= kTop;
  while (parts.significand < kTop) {
    parts.significand <<= 1;
    --parts.exponent;
  }
  return parts;
}

}  // namespace product_detail

// In integers, so it depends on no floating-point environment. Beyond the range of a double: the
// largest double; below it: the smallest; each with the sign of the product. NaN stays the operand
// it was, with its sign, `a` before `b`; Inf times zero is NaN.
OCTAVO_HD constexpr double product_to_odd(double a, double b) {
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63, kInf = 0x7FF0000000000000u;
  const auto a_bits = __builtin_bit_cast(std::uint64_t, a);
  const auto b_bits = __builtin_bit_cast(std::uint64_t, b);
  const std::uint64_t a_size = a_bits & ~kSign, b_size = b_bits & ~kSign;
  const std::uint64_t sign = (a_bits ^ b_bits) & kSign;
  if (a_size > kInf) return a;
  if (b_size > kInf) return b;
  if (a_size == kInf || b_size == kInf) {
    const bool is_nan = a_size == 0 || b_size == 0;
    return __builtin_bit_cast(double, is_nan ? kInf | kInf >> 1 : sign | kInf);
  }
  if (a_size == 0 || b_size == 0) return __builtin_bit_cast(double, sign);
  const product_detail::Parts x = product_detail::parts_of(a_size),
                              y = product_detail::parts_of(b_size);
  const product_detail::Wide product =
      static_cast<product_detail::Wide>(x.significand) * y.significand;
  int drop = (product >> 105) != 0 ? 53 : 52;  // 105 or 106 bits, of which 53 stay
  int field = x.exponent + y.exponent + drop + 1075;
  if (field >= 2047) return __builtin_bit_cast(double, sign | (kInf - 1));
  if (field <= 0) {  // subnormal: fewer bits stay
    drop += 1 - field;
    drop = drop < 110 ? drop : 110;
    field = 1;
  }
  const product_detail::Wide rest = product & ((static_cast<product_detail::Wide>(1) << drop) - 1);
  const auto kept = static_cast<std::uint64_t>(product >> drop) | (rest != 0 ? 1u : 0u);
  // The leading bit of a normal number adds one to the field.
  return __builtin_bit_cast(double, sign | ((static_cast<std::uint64_t>(field - 1) << 52) + kept));
}

}  // namespace octavo
