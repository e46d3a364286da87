// The draws of round/stochastic.h for groups of sixteen elements, sixteen Philox blocks at a time.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "octavo/base/philox.h"
#include "octavo/round/policy.h"
#include "octavo/round/stochastic.h"

namespace octavo::cpu {
namespace {

// High and low halves of four 32 x 32 bit products.
inline void multiply_wide(uint32x4_t a, std::uint32_t b, uint32x4_t& high, uint32x4_t& low) {
  const uint32x4_t low_pair = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(a), b));
  const uint32x4_t high_pair = vreinterpretq_u32_u64(vmull_high_n_u32(a, b));
  low = vuzp1q_u32(low_pair, high_pair);
  high = vuzp2q_u32(low_pair, high_pair);
}

// Four vectors of four counters go through the rounds interleaved: a single one would wait for its
// own multiplications in each of ten rounds.
inline constexpr int kChains = 4;
inline constexpr std::uint64_t kBlocks = 4 * kChains;

// Blocks counter .. counter + kBlocks - 1, in memory order.
inline void philox_blocks(std::uint64_t seed, std::uint64_t counter, std::uint32_t* out) {
  uint32x4_t c0[kChains], c1[kChains], c2[kChains], c3[kChains];
  for (int chain = 0; chain < kChains; ++chain) {
    std::uint64_t counters[4];
    for (std::uint64_t i = 0; i < 4; ++i)
      counters[i] = counter + 4 * static_cast<std::uint64_t>(chain) + i;
    const uint32x4_t pair0 = vreinterpretq_u32_u64(vld1q_u64(counters));
    const uint32x4_t pair1 = vreinterpretq_u32_u64(vld1q_u64(counters + 2));
    c0[chain] = vuzp1q_u32(pair0, pair1);
    c1[chain] = vuzp2q_u32(pair0, pair1);
    c2[chain] = c3[chain] = vdupq_n_u32(0);
  }
  auto key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int chain = 0; chain < kChains; ++chain) {
      uint32x4_t high0, low0, high1, low1;
      multiply_wide(c0[chain], kPhiloxMultiplier0, high0, low0);
      multiply_wide(c2[chain], kPhiloxMultiplier1, high1, low1);
      c0[chain] = veorq_u32(veorq_u32(high1, c1[chain]), vdupq_n_u32(key0));
      c2[chain] = veorq_u32(veorq_u32(high0, c3[chain]), vdupq_n_u32(key1));
      c1[chain] = low1;
      c3[chain] = low0;
    }
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  for (int chain = 0; chain < kChains; ++chain) {
    vst4q_u32(out + 16 * chain, (uint32x4x4_t{{c0[chain], c1[chain], c2[chain], c3[chain]}}));
  }
}

// Draws as the fraction R / 2^n of a float in [1, 2): shifted to just below the implicit bit.
class RandomGroups {
 public:
  explicit RandomGroups(const EncodePolicy& policy)
      : seed_(policy.seed),
        blocks_per_group_(stochastic_draw_bits(policy.stochastic_bits) == 8 ? 1 : 2),
        shift_(vdupq_n_s16(static_cast<std::int16_t>(16 - policy.stochastic_bits))) {}

  // Four vectors for the elements index .. index + 15; index is a multiple of 16.
  const uint32x4_t* at(std::uint64_t index) {
    const std::uint64_t block = index / 16 * blocks_per_group_;
    if (!filled_ || block - first_block_ >= kBlocks) {
      philox_blocks(seed_, block, words_);
      first_block_ = block;
      filled_ = true;
    }
    const std::uint32_t* words = words_ + 4 * (block - first_block_);
    if (blocks_per_group_ == 1) {
      const uint8x16_t bytes = vreinterpretq_u8_u32(vld1q_u32(words));
      spread(vmovl_u8(vget_low_u8(bytes)), 0);
      spread(vmovl_high_u8(bytes), 2);
    } else {
      spread(vreinterpretq_u16_u32(vld1q_u32(words)), 0);
      spread(vreinterpretq_u16_u32(vld1q_u32(words + 4)), 2);
    }
    return lanes_;
  }

 private:
  // The shift drops the bits of a draw above its n bits.
  void spread(uint16x8_t draws, int at) {
    const uint16x8_t aligned = vshlq_u16(draws, shift_);
    lanes_[at] = vshll_n_u16(vget_low_u16(aligned), 7);
    lanes_[at + 1] = vshll_high_n_u16(aligned, 7);
  }

  std::uint64_t seed_, blocks_per_group_, first_block_ = 0;
  bool filled_ = false;
  int16x8_t shift_;
  uint32x4_t lanes_[4];
  alignas(16) std::uint32_t words_[4 * kBlocks];
};

}  // namespace
}  // namespace octavo::cpu
