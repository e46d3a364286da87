// AttentionDropout: probability and seed of dropout, in jobs and options of attention. Which
// weights these drop is in attention_dropout_mask.h.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"

namespace octavo {

// A weight is kept with a chance of 1 - probability, and then divided by that.
struct AttentionDropout {
  double probability = 0.0;  // from 0, which is none, to less than 1
  std::uint64_t seed = 0;

  [[nodiscard]] OCTAVO_HD constexpr bool exists() const { return probability > 0.0; }
  [[nodiscard]] OCTAVO_HD constexpr double factor() const { return 1.0 / (1.0 - probability); }
  // Draws below it are dropped: 32 bits, so the chance is within 2^-33 of what was asked for, or
  // 1 - 2^-32.
  [[nodiscard]] OCTAVO_HD constexpr std::uint32_t threshold() const {
    constexpr double kDraws = 4294967296.0;
    const double wanted = probability * kDraws + 0.5;
    return wanted >= kDraws - 1.0 ? 0xFFFFFFFFu : static_cast<std::uint32_t>(wanted);
  }
};

}  // namespace octavo
