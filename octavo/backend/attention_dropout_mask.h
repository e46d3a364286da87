// Which weights of attention are dropped: a function of (seed, batch, head, row, key) alone, so
// that forward, backward and every backend agree, whatever the order of their tiles and threads.
#pragma once

#include <cstdint>

#include "octavo/backend/attention_dropout.h"
#include "octavo/base/macros.h"
#include "octavo/base/philox.h"

namespace octavo {

// Four neighbouring keys share a block of draws, and so a call.
inline constexpr std::int64_t kDropoutKeys = 4;

// Bit i: is the weight of key 4 * group + i kept?
OCTAVO_HD constexpr std::uint32_t dropout_kept(std::uint32_t threshold, std::uint64_t seed,
                                               std::int64_t batch, std::int64_t head,
                                               std::int64_t row, std::int64_t group) {
  const PhiloxBlock draws =
      philox4x32({static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(row),
                  static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(batch)},
                 static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  return (draws[0] >= threshold ? 1u : 0u) | (draws[1] >= threshold ? 2u : 0u) |
         (draws[2] >= threshold ? 4u : 0u) | (draws[3] >= threshold ? 8u : 0u);
}

OCTAVO_HD constexpr bool dropout_keep(const AttentionDropout& dropout, std::int64_t batch,
                                      std::int64_t head, std::int64_t row, std::int64_t key) {
  const std::uint32_t kept =
      dropout_kept(dropout.threshold(), dropout.seed, batch, head, row, key / kDropoutKeys);
  return (kept >> key % kDropoutKeys & 1u) != 0;
}

}  // namespace octavo
