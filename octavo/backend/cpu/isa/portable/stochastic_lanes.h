// The draws of round/stochastic.h for a run of elements: as many Philox blocks at a time as a
// compiler has lanes, and pieces cut out of them by address. A block takes ten rounds of two
// products, which a scalar loop does one after the other.
//
// Everything here has internal linkage on purpose: each instruction set compiles it for itself.
#pragma once

#include <cstdint>
#include <cstring>

#include "octavo/base/philox.h"
#include "octavo/round/stochastic.h"

namespace octavo::cpu::portable {
namespace {

// Elements whose random bits are drawn at a time.
constexpr std::int64_t kDraws = 512;
// Sixteen bits each, and one block more because the first and the last are cut.
constexpr std::int64_t kDrawBlocks = kDraws / 8 + 1;

// Blocks counter .. counter + count - 1, in memory order.
void philox_blocks(std::uint64_t seed, std::uint64_t counter, std::int64_t count,
                   std::uint32_t* __restrict words) {
  const auto seed0 = static_cast<std::uint32_t>(seed);
  const auto seed1 = static_cast<std::uint32_t>(seed >> 32);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t at = counter + static_cast<std::uint64_t>(i);
    std::uint32_t c0 = static_cast<std::uint32_t>(at), c1 = static_cast<std::uint32_t>(at >> 32);
    std::uint32_t c2 = 0, c3 = 0, key0 = seed0, key1 = seed1;
#pragma GCC unroll 10
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * c0;
      const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * c2;
      c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ key0;
      c1 = static_cast<std::uint32_t>(product1);
      c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ key1;
      c3 = static_cast<std::uint32_t>(product0);
      key0 += kPhiloxWeyl0;
      key1 += kPhiloxWeyl1;
    }
    words[4 * i] = c0;
    words[4 * i + 1] = c1;
    words[4 * i + 2] = c2;
    words[4 * i + 3] = c3;
  }
}

template <typename Piece, typename Lane>
void cut_draws(const std::uint32_t* words, std::int64_t first, std::uint32_t mask, std::int64_t n,
               Lane* __restrict draws) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  Piece pieces[kDraws];
  std::memcpy(pieces, reinterpret_cast<const std::byte*>(words) + first * sizeof(Piece),
              static_cast<std::size_t>(n) * sizeof(Piece));
  for (std::int64_t i = 0; i < n; ++i) draws[i] = pieces[i] & mask;
}

// At most kDraws elements.
template <typename Lane>
void draw_lanes(std::uint64_t seed, std::uint64_t index, int bits, std::int64_t n, Lane* draws) {
  alignas(64) std::uint32_t words[4 * kDrawBlocks];
  const bool bytes = bits <= 8;
  const std::uint64_t per_block = bytes ? 16 : 8;
  const auto first = static_cast<std::int64_t>(index % per_block);
  const std::int64_t blocks =
      (first + n + static_cast<std::int64_t>(per_block) - 1) / static_cast<std::int64_t>(per_block);
  philox_blocks(seed, index / per_block, blocks, words);
  const std::uint32_t mask = (1u << bits) - 1;
  bytes ? cut_draws<std::uint8_t>(words, first, mask, n, draws)
        : cut_draws<std::uint16_t>(words, first, mask, n, draws);
}

}  // namespace
}  // namespace octavo::cpu::portable
