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

// A finite magnitude as significand * 2^exponent, of 53 bits but for zero.
struct Parts {
  std::uint64_t significand = 0;
  int exponent = 0;
};

OCTAVO_HD constexpr Parts parts_of(std::uint64_t magnitude) {
  constexpr int kBits = 53;
  const int field = static_cast<int>(magnitude >> 52), is_normal = static_cast<int>(field > 0);
  Parts parts{magnitude & ((std::uint64_t{1} << 52) - 1), field + 1 - is_normal - 1075};
  parts.significand |= static_cast<std::uint64_t>(is_normal) << 52;
  for (int step = 32; step > 0; step /= 2) {
    const int shift = static_cast<int>(parts.significand >> (kBits - step) == 0) * step;
    parts.significand <<= shift;
    parts.exponent -= shift;
  }
  return parts;
}

// A selection by masks, which a compiler makes no branch of.
OCTAVO_HD constexpr std::uint64_t choose(bool first, std::uint64_t a, std::uint64_t b) {
  const std::uint64_t mask = std::uint64_t{0} - static_cast<std::uint64_t>(first);
  return (a & mask) | (b & ~mask);
}
OCTAVO_HD constexpr int positive_part(int x) { return x & ~(x >> 31); }

}  // namespace product_detail

// In integers, so it depends on no floating-point environment, and without branches, so that its
// time tells nothing of the operands. Beyond the range of a double: the largest double; below it:
// the smallest; each with the sign of the product. NaN stays the operand it was, with its sign, `a`
// before `b`; Inf times zero is NaN.
OCTAVO_HD constexpr double product_to_odd(double a, double b) {
  using namespace product_detail;
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63, kInf = 0x7FF0000000000000u;
  const auto a_bits = __builtin_bit_cast(std::uint64_t, a);
  const auto b_bits = __builtin_bit_cast(std::uint64_t, b);
  const std::uint64_t a_size = a_bits & ~kSign, b_size = b_bits & ~kSign;
  const std::uint64_t sign = (a_bits ^ b_bits) & kSign;
  const Parts x = parts_of(a_size), y = parts_of(b_size);
  const Wide product = static_cast<Wide>(x.significand) * y.significand;
  int drop = 52 + static_cast<int>(product >> 105);  // 105 or 106 bits, of which 53 stay
  int field = x.exponent + y.exponent + drop + 1075;
  const bool is_over = field >= 2047;
  const int lost = positive_part(1 - field);  // of a subnormal product fewer bits stay
  field += lost;
  drop += lost;
  drop -= positive_part(drop - 110);
  const Wide rest = product & ((static_cast<Wide>(1) << drop) - 1);
  const std::uint64_t rest_bits =
      static_cast<std::uint64_t>(rest >> 64) | static_cast<std::uint64_t>(rest);
  const std::uint64_t kept =
      static_cast<std::uint64_t>(product >> drop) | static_cast<std::uint64_t>(rest_bits != 0);
  // The leading bit of a normal number adds one to the field.
  std::uint64_t size = (static_cast<std::uint64_t>(field - 1) << 52) + kept;
  size = choose(is_over, kInf - 1, size);
  const bool is_zero = (a_size == 0) | (b_size == 0), is_inf = (a_size == kInf) | (b_size == kInf);
  size = choose(is_zero, 0, size);
  size = choose(is_inf, kInf, size) | sign;
  size = choose(is_zero & is_inf, kInf | kInf >> 1, size);
  size = choose(b_size > kInf, b_bits, size);
  return __builtin_bit_cast(double, choose(a_size > kInf, a_bits, size));
}

}  // namespace octavo
