// Philox4x32, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel Random
// Numbers: As Easy as 1, 2, 3" (SC 2011). A draw depends on (seed, counter) alone, so any split of
// the work over threads, chunks or devices gives the same bits.
//
// Ten rounds, the authors' recommendation; their known answers are in philox_test.cc.
#pragma once

#include <array>
#include <cstdint>

#include "octavo/base/macros.h"

namespace octavo {

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53u, kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;

using PhiloxBlock = std::array<std::uint32_t, 4>;

OCTAVO_HD constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t key0,
                                           std::uint32_t key1) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
               static_cast<std::uint32_t>(product0)};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return counter;
}

OCTAVO_HD constexpr PhiloxBlock philox4x32(std::uint64_t seed, std::uint64_t counter) {
  return philox4x32(
      {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
      static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
}

}  // namespace octavo
