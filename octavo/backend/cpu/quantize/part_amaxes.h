// One amax per part of a tensor split among threads, as the bits of f32.
#pragma once

#include <array>
#include <cstdint>

#include "octavo/backend/cpu/masks.h"

namespace octavo::cpu {

inline constexpr int kMaxParts = 64;

class PartAmaxes {
 public:
  std::uint32_t& of(int part) { return found_[static_cast<std::size_t>(part)]; }
  [[nodiscard]] std::uint32_t largest() const {
    std::uint32_t most = 0;
    for (const std::uint32_t one : found_) most = larger(most, one);
    return most;
  }

 private:
  std::array<std::uint32_t, kMaxParts> found_{};
};

}  // namespace octavo::cpu
