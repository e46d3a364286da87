// Stochastic rounding with n random bits: with nu in [0, 1) the discarded fraction and R the draw,
// the value rounds away from zero when floor(nu * 2^n) + R >= 2^n (P3109's variant A). The chance
// is nu rounded down to a multiple of 2^-n.
//
// Draws are a function of (seed, index): a Philox block is 128 bits, cut into bytes for n <= 8 and
// into 16-bit words beyond, in little-endian order; the low n bits of the piece are the draw.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/base/philox.h"

namespace octavo {

OCTAVO_HD constexpr int stochastic_draw_bits(int stochastic_bits) {
  return stochastic_bits <= 8 ? 8 : 16;
}

OCTAVO_HD constexpr std::uint32_t stochastic_draw(std::uint64_t seed, std::uint64_t index,
                                                  int stochastic_bits) {
  const int piece_bits = stochastic_draw_bits(stochastic_bits);
  const unsigned per_block = 128u / static_cast<unsigned>(piece_bits),
                 per_word = 32u / static_cast<unsigned>(piece_bits);
  const PhiloxBlock block = philox4x32(seed, index / per_block);
  const unsigned piece = static_cast<unsigned>(index % per_block);
  return block[piece / per_word] >> (piece % per_word * static_cast<unsigned>(piece_bits)) &
         ((1u << stochastic_bits) - 1);
}

// The draws of elements index .. index + n - 1: a block of random bits is made once for all it
// serves.
template <typename Lane>
constexpr void stochastic_draws(std::uint64_t seed, std::uint64_t index, int stochastic_bits,
                                std::int64_t n, Lane* draws) {
  const int piece_bits = stochastic_draw_bits(stochastic_bits);
  const unsigned per_block = 128u / static_cast<unsigned>(piece_bits),
                 per_word = 32u / static_cast<unsigned>(piece_bits);
  PhiloxBlock block{};
  for (std::int64_t i = 0; i < n; ++i, ++index) {
    const auto piece = static_cast<unsigned>(index % per_block);
    if (i == 0 || piece == 0) block = philox4x32(seed, index / per_block);
    draws[i] = block[piece / per_word] >> (piece % per_word * static_cast<unsigned>(piece_bits)) &
               ((1u << stochastic_bits) - 1);
  }
}

}  // namespace octavo
