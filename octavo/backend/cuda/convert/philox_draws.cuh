// Draws of stochastic rounding for eight elements at a time: the Philox counter RNG of
// base/philox.h.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/convert/element_plans.h"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/round/stochastic.h"

namespace octavo::cuda {

// The keys of all rounds, computed on the host: a kernel argument, read from constant memory at no
// cost.
struct DrawKeys {
  std::uint32_t key0[kPhiloxRounds], key1[kPhiloxRounds];
};
inline DrawKeys draw_keys(std::uint64_t seed) {
  DrawKeys keys;
  for (std::uint32_t round = 0; round < kPhiloxRounds; ++round) {
    keys.key0[round] = static_cast<std::uint32_t>(seed) + round * kPhiloxWeyl0;
    keys.key1[round] = static_cast<std::uint32_t>(seed >> 32) + round * kPhiloxWeyl1;
  }
  return keys;
}

__device__ __forceinline__ uint4 philox_block(const DrawKeys& keys, std::uint64_t counter) {
  uint4 c{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0u, 0u};
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = static_cast<std::uint64_t>(kPhiloxMultiplier0) * c.x;
    const std::uint64_t product1 = static_cast<std::uint64_t>(kPhiloxMultiplier1) * c.z;
    c = {static_cast<std::uint32_t>(product1 >> 32) ^ c.y ^ keys.key0[round],
         static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ c.w ^ keys.key1[round],
         static_cast<std::uint32_t>(product0)};
  }
  return c;
}

// Draws of eight elements from `index` on, a multiple of eight: they come from one Philox block.
// For rounding by f32 sums (draws_in_sums) they are returned as the f32 that the sums take.
template <EncodeKind kKind>
__device__ __forceinline__ void draw_eight(const DrawKeys& keys, std::uint64_t index,
                                           const EncodePlan& lane,
                                           std::uint32_t (&draws)[kVector]) {
  const auto bits = lane.stochastic_bits;
  const bool bytes = bits <= 8u;
  const uint4 block = philox_block(keys, index >> (bytes ? 4 : 3));
  if (draws_in_sums(kKind) && bits == 16u) {  // in the low half of the f32, unshifted
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      draws[i] = __byte_perm(word(block, i / 2), lane.draw_base, i % 2 == 0 ? 0x7610 : 0x7632);
    return;
  }
  if (bytes) {
    const bool upper = index % 16u != 0u;
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      draws[i] = (upper ? word(block, 2 + i / 4) : word(block, i / 4)) >> (i % 4 * 8);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) draws[i] = word(block, i / 2) >> (i % 2 * 16);
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i)
    draws[i] = draws_in_sums(kKind) ? (draws[i] << (16u - bits) & 0xFFFFu) | lane.draw_base
                                    : draws[i] & ((1u << bits) - 1u);
}

}  // namespace octavo::cuda
