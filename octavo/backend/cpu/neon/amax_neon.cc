// The amaxes of tiles of sixteen, four tiles at a time: pairwise maxima put them side by side,
// where one reduction after the other would pass through a slow instruction each.
#include <arm_neon.h>

#include "octavo/backend/cpu/neon/neon_internal.h"

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

}  // namespace

std::int64_t neon_amax16(DType dtype, const void* values, std::int64_t tiles, std::uint32_t* amax) {
  std::int64_t t = 0;
  if (dtype == DType::f32) {
    const auto* x = static_cast<const float*>(values);
    for (; t + 4 <= tiles; t += 4, x += 64) {
      const uint32x4_t a = vpmaxq_u32(tile_of_f32(x), tile_of_f32(x + 16));
      const uint32x4_t b = vpmaxq_u32(tile_of_f32(x + 32), tile_of_f32(x + 48));
      vst1q_u32(amax + t, vmaxq_u32(vld1q_u32(amax + t), vpmaxq_u32(a, b)));
    }
  } else if (dtype == DType::bf16) {
    const auto* x = static_cast<const std::uint16_t*>(values);
    for (; t + 4 <= tiles; t += 4, x += 64) {
      const uint16x8_t a = vpmaxq_u16(tile_of_bf16(x), tile_of_bf16(x + 16));
      const uint16x8_t b = vpmaxq_u16(tile_of_bf16(x + 32), tile_of_bf16(x + 48));
      const uint16x8_t pairs = vpmaxq_u16(a, b);
      const uint16x8_t all = vpmaxq_u16(pairs, pairs);
      const uint32x4_t bits = vshll_n_u16(vget_low_u16(all), 15);
      vst1q_u32(amax + t, vmaxq_u32(vld1q_u32(amax + t), bits));
    }
  }
  return t;
}

}  // namespace octavo::cpu
