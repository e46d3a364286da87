#include "octavo/backend/cpu/attention/attention_limbs.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "octavo/backend/cpu/attention/power_unit.h"

namespace octavo::cpu {

float split_limbs(const float* values, std::int64_t n, std::int64_t padded, std::int8_t* hi,
                  std::int8_t* lo) {
  constexpr std::uint32_t kMagnitude = 0x7FFFFFFF;
  std::uint32_t amax = 0;
  for (std::int64_t i = 0; i < n; ++i)
    amax = std::max(amax, std::bit_cast<std::uint32_t>(values[i]) & kMagnitude);
  std::memset(hi + n, 0, static_cast<std::size_t>(padded - n));
  std::memset(lo + n, 0, static_cast<std::size_t>(padded - n));
  // Rows below 2^-100 count as zeros: their inverse unit would not be finite.
  constexpr std::uint32_t kLeast = (127 - 100) << 23;
  if (amax < kLeast) {
    std::memset(hi, 0, static_cast<std::size_t>(n));
    std::memset(lo, 0, static_cast<std::size_t>(n));
    return 0.0F;
  }
  // 127 * 128 + 63.5 = 16319.5 is the largest that can be split: mantissas above that of 16256 =
  // 1.984375 * 2^13 take the next unit.
  constexpr std::uint32_t kRoom = (1u << 23) - 0x7E0000u - 1;
  const std::uint32_t exponent = (amax + kRoom) >> 23;  // field of the power of two below 16256
  const PowerUnit power(exponent - 13);
  constexpr float kRounder = 0x1.8p+23F;
  constexpr std::int32_t kRounderBits = 0x4B400000;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t whole =
        std::bit_cast<std::int32_t>(values[i] * power.inverse + kRounder) - kRounderBits;
    const std::int32_t high = (whole + 64) >> 7;
    hi[i] = static_cast<std::int8_t>(high);
    lo[i] = static_cast<std::int8_t>(whole - high * 128);
  }
  return power.unit;
}

}  // namespace octavo::cpu
