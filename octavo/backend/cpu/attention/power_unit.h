// Power-of-two units: dividing by one is exact.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace octavo::cpu {

// A unit and its inverse, from the exponent field of its f32, 1 to 253.
struct PowerUnit {
  float unit, inverse;
  explicit PowerUnit(std::uint32_t field)
      : unit(std::bit_cast<float>(field << 23)),
        inverse(std::bit_cast<float>((254 - field) << 23)) {}
};

// The smallest that is not below a magnitude, within [2^least, 2^113]: with headroom on either side
// for further factors.
inline float power_of_two_at_least(float value, int least) {
  const std::uint32_t field = (std::bit_cast<std::uint32_t>(value) + 0x7FFFFFu) >> 23;
  return std::bit_cast<float>(std::clamp(field, static_cast<std::uint32_t>(127 + least), 240u)
                              << 23);
}

}  // namespace octavo::cpu
