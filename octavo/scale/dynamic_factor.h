// dynamic_factor: from the amax of a tensor to the factor (inv_scale) that brings it into the range
// of a format, as a power of two or as the quotient.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"

namespace octavo {

enum class DynamicRule : std::uint8_t {
  power_of_two,  // the largest with which the amax is still within the range: scales exactly
  value,         // largest value / amax: uses all of the range. An f32 where it is in f32's range
};

// One for an amax of zero, Inf or NaN. `largest` is the format's, positive and finite.
OCTAVO_HD inline double dynamic_factor(double amax, double largest, DynamicRule rule) {
  constexpr std::uint64_t kInf = 0x7FF0000000000000u;
  const auto bits = __builtin_bit_cast(std::uint64_t, amax);
  if (!(amax > 0.0) || bits >= kInf) return 1.0;
  if (rule == DynamicRule::value) {
    // Amaxes of f64, and the smallest of f32, ask for exponents that f32 does not have: a limit
    // would saturate or flush the whole tensor.
    const double quotient = largest / amax;
    if (quotient >= 0x1p-126 && quotient <= 0x1.FFFFFEp127) return static_cast<float>(quotient);
    constexpr double kMost = 0x1.FFFFFFFFFFFFFp1023, kLeast = 0x1p-1022;
    return quotient > kMost ? kMost : quotient < kLeast ? kLeast : quotient;
  }
  // amax * 2^k <= largest < amax * 2^(k + 1), by exponents and mantissas: a quotient would round.
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
  double normal = amax;
  int below = 0;  // subnormal: raised first
  if (bits >> 52 == 0) {
    normal = amax * 0x1p64;
    below = 64;
  }
  const auto from = __builtin_bit_cast(std::uint64_t, normal),
             to = __builtin_bit_cast(std::uint64_t, largest);
  int exponent = static_cast<int>(to >> 52) - static_cast<int>(from >> 52) + below;
  if ((from & kMantissa) > (to & kMantissa)) --exponent;
  exponent = exponent < -1022 ? -1022 : exponent > 1023 ? 1023 : exponent;
  return __builtin_bit_cast(double, static_cast<std::uint64_t>(exponent + 1023) << 52);
}

}  // namespace octavo
