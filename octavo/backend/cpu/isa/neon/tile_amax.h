// The amaxes of four tiles of sixteen, as the bits of f32: pairwise maxima put them into one
// vector, where separate reductions would take a slow instruction each.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "octavo/tensor/dtype.h"

namespace octavo::cpu {
namespace {

[[gnu::always_inline]] inline uint32x4_t tile_of_f32(const float* x) {
  uint32x4_t bits[4];
  for (int i = 0; i < 4; ++i) bits[i] = vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + 4 * i)));
  return vmaxq_u32(vmaxq_u32(bits[0], bits[1]), vmaxq_u32(bits[2], bits[3]));
}

// Doubled, which drops the sign.
[[gnu::always_inline]] inline uint16x8_t tile_of_bf16(const std::uint16_t* x) {
  const uint16x8_t a = vld1q_u16(x), b = vld1q_u16(x + 8);
  return vmaxq_u16(vaddq_u16(a, a), vaddq_u16(b, b));
}

template <DType kSource>
[[gnu::always_inline]] inline uint32x4_t four_amaxes(const std::byte* from) {
  if constexpr (kSource == DType::f32) {
    const auto* x = reinterpret_cast<const float*>(from);
    const uint32x4_t a = vpmaxq_u32(tile_of_f32(x), tile_of_f32(x + 16));
    const uint32x4_t b = vpmaxq_u32(tile_of_f32(x + 32), tile_of_f32(x + 48));
    return vpmaxq_u32(a, b);
  } else {
    static_assert(kSource == DType::bf16);
    const auto* x = reinterpret_cast<const std::uint16_t*>(from);
    const uint16x8_t a = vpmaxq_u16(tile_of_bf16(x), tile_of_bf16(x + 16));
    const uint16x8_t b = vpmaxq_u16(tile_of_bf16(x + 32), tile_of_bf16(x + 48));
    const uint16x8_t pairs = vpmaxq_u16(a, b), all = vpmaxq_u16(pairs, pairs);
    return vshll_n_u16(vget_low_u16(all), 15);
  }
}

}  // namespace
}  // namespace octavo::cpu
