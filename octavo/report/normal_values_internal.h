// Normal numbers, the same on every machine: for inputs that are made, and for what normal weights
// lose.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>

#include "octavo/base/philox.h"

namespace octavo {

// Two uniform numbers become two normal ones (Box and Muller).
inline void fill_normal(std::span<float> to, std::uint64_t seed) {
  for (std::size_t i = 0; i < to.size(); i += 2) {
    const PhiloxBlock bits = philox4x32(seed, i / 2);
    const double u = (static_cast<double>(bits[0]) + 0.5) / 4294967296.0,
                 angle = 2.0 * std::numbers::pi * static_cast<double>(bits[1]) / 4294967296.0;
    const double radius = std::sqrt(-2.0 * std::log(u));
    to[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < to.size()) to[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

}  // namespace octavo
