// Scales of rows of V, taken apart for products in bf16: s = t 2^e with 1 <= |t| < 2. The power of
// two goes to the packed row, where it is exact, and t to the weights of its key before they are
// rounded, so that a weight is off by half a step of itself whatever scales are. Sums of weights
// take 1 / t of what was multiplied.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "octavo/backend/cpu/attention/attention.h"

namespace octavo::cpu {

struct KeyFactors {
  static constexpr std::int16_t kZero = -512;  // the exponent of a scale of zero

  bool differ = false;  // otherwise all keys have one scale, and nothing below is set
  float power = 1.0F;   // 2^e of the largest
  std::int16_t exponents[kMaxTileKeys];  // e less that of the largest, at most 0
  alignas(64) float factors[kMaxTileKeys], inverses[kMaxTileKeys];

  // Keys from `count` on have a factor of 1. So have scales that are zero, whose rows are zeros,
  // and those that are not finite, which are not for here.
  KeyFactors(const float* scales, std::int64_t count, std::int64_t keys) {
    for (std::int64_t i = 1; i < count; ++i) differ |= !(scales[i] == scales[0]);
    if (!differ) return;
    int most = kLeast;
    for (std::int64_t i = 0; i < count; ++i) most = std::max(most, exponent_of(scales[i]));
    power = std::ldexp(1.0F, most);
    for (std::int64_t i = 0; i < keys; ++i) {
      const int exponent = i < count ? exponent_of(scales[i]) : kNone;
      factors[i] = inverses[i] = 1.0F;
      exponents[i] = kZero;
      if (exponent == kNone) continue;
      exponents[i] = static_cast<std::int16_t>(exponent - most);
      const float normal = exponent < -126 ? scales[i] * 0x1p+30F : scales[i];
      factors[i] =
          std::bit_cast<float>((std::bit_cast<std::uint32_t>(normal) & 0x807FFFFFu) | 0x3F800000u);
      inverses[i] = 1.0F / factors[i];
    }
  }
  [[nodiscard]] bool is_zero(std::int64_t key) const { return exponents[key] == kZero; }

 private:
  static constexpr int kLeast = -149, kNone = -1000;
  // e, or kNone where there is none.
  static int exponent_of(float scale) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(scale) & 0x7FFFFFFFu;
    if (magnitude == 0 || magnitude >= 0x7F800000u) return kNone;
    return magnitude >= 0x00800000u ? static_cast<int>(magnitude >> 23) - 127
                                    : kLeast + std::bit_width(magnitude) - 1;
  }
};

}  // namespace octavo::cpu
