// The draws of stochastic rounding, written again from the paper (Salmon et al., SC 2011, section
// 3) and from the description in octavo/round/stochastic.h: a block of 128 bits per counter, cut
// into bytes for up to eight random bits and into 16-bit words beyond. Checked against the authors'
// known answers in oracle_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

namespace oracle {

inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t left = 0xD2511F53ull * counter[0], right = 0xCD9E8D57ull * counter[2];
    const std::uint32_t second = counter[1], fourth = counter[3];
    counter[0] = static_cast<std::uint32_t>(right >> 32) ^ second ^ key[0];
    counter[1] = static_cast<std::uint32_t>(right & 0xFFFFFFFFu);
    counter[2] = static_cast<std::uint32_t>(left >> 32) ^ fourth ^ key[1];
    counter[3] = static_cast<std::uint32_t>(left & 0xFFFFFFFFu);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// Bit by bit out of the block seen as 16 bytes, lowest first.
inline std::uint32_t draw(std::uint64_t seed, std::uint64_t index, int bits) {
  const std::uint64_t pieces = bits <= 8 ? 16 : 8;
  const std::uint64_t counter = index / pieces, first_bit = index % pieces * (128 / pieces);
  const std::array<std::uint32_t, 4> block =
      philox({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
             {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  std::uint32_t value = 0;
  for (int i = 0; i < bits; ++i) {
    const std::uint64_t at = first_bit + static_cast<std::uint64_t>(i);
    value |= (block[at / 32] >> (at % 32) & 1u) << i;
  }
  return value;
}

}  // namespace oracle
