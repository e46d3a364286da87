// MX scales: from the amaxes of blocks to e8m0 scale bytes and factors, powers of two by integer
// operations.
#pragma once

#include <arm_neon.h>

#include "octavo/backend/cpu/isa.h"
#include "octavo/format/decode.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::cpu {
namespace {

struct MxConstants {
  std::int32_t emax;        // exponent of the largest value
  std::uint32_t bump_from;  // mantissas of the amax from here on take the next scale
  std::int32_t down;        // the format's bias below that of f16
  std::uint8_t max_field, sign, poison;
  int sign_shift;

  explicit MxConstants(const MxBlocks& blocks) {
    const Format& format = blocks.format;
    const Binade top = binade_of(static_cast<float>(max_value(format)));
    emax = top.exponent;
    const std::uint32_t none = 1u << 23;
    bump_from = blocks.rule == ScaleRule::rceil  ? top.mantissa + 1
                : blocks.rule == ScaleRule::ceil ? 1
                : blocks.rule == ScaleRule::even ? none - (1u << (22 - format.mantissa_bits))
                                                 : none;
    down = 15 - format.bias;
    max_field = static_cast<std::uint8_t>(format.max_field());
    sign = static_cast<std::uint8_t>(format.sign_mask());
    sign_shift = 8 - format.bits();
    poison = blocks.poison_code;
  }
};

struct BlockScale {
  std::uint32_t factor;  // bits of an f32
  std::uint8_t byte, poisoned;
};

// An amax whose exponent field is 0 comes out as byte 0 by itself: every emax is at least 1.
[[gnu::always_inline]] inline BlockScale scale_of(const MxConstants& k, std::uint32_t amax) {
  std::int32_t byte = static_cast<std::int32_t>(amax >> 23) - k.emax +
                      static_cast<std::int32_t>((amax & 0x7FFFFFu) >= k.bump_from);
  byte &= ~(byte >> 31);
  const std::int32_t exponent = 127 - byte - k.down;
  const std::int32_t below = -126 - exponent;  // subnormal where positive
  const auto is_below = static_cast<std::uint32_t>(-below >> 31);
  const std::uint32_t normal = static_cast<std::uint32_t>(exponent + 127) << 23;
  const std::uint32_t subnormal =
      0x00800000u >> (static_cast<std::uint32_t>(below) & is_below & 31u);
  const std::uint32_t poisoned = 0u - static_cast<std::uint32_t>(amax >= 0x7F800000u);
  return {(normal & ~is_below) | (subnormal & is_below),
          static_cast<std::uint8_t>(static_cast<std::uint32_t>(byte) | poisoned),
          static_cast<std::uint8_t>(poisoned)};
}

// The same for four amaxes at once; `bytes` and `poisoned` in the low byte of each lane.
[[gnu::always_inline]] inline void scales_of(const MxConstants& k, uint32x4_t amax,
                                             float32x4_t& factor, uint32x4_t& bytes,
                                             uint32x4_t& poisoned) {
  const uint32x4_t bump =
      vcgeq_u32(vandq_u32(amax, vdupq_n_u32(0x7FFFFFu)), vdupq_n_u32(k.bump_from));
  int32x4_t byte = vsubq_s32(vreinterpretq_s32_u32(vshrq_n_u32(amax, 23)), vdupq_n_s32(k.emax));
  byte = vmaxq_s32(vsubq_s32(byte, vreinterpretq_s32_u32(bump)), vdupq_n_s32(0));
  const int32x4_t exponent = vsubq_s32(vdupq_n_s32(127 - k.down), byte);
  const uint32x4_t normal =
      vreinterpretq_u32_s32(vshlq_n_s32(vaddq_s32(exponent, vdupq_n_s32(127)), 23));
  const int32x4_t above = vaddq_s32(exponent, vdupq_n_s32(126));  // subnormal where negative
  const uint32x4_t subnormal = vshlq_u32(vdupq_n_u32(0x00800000u), above);
  factor = vreinterpretq_f32_u32(vbslq_u32(vcltzq_s32(above), subnormal, normal));
  poisoned = vcgeq_u32(amax, vdupq_n_u32(0x7F800000u));
  bytes = vorrq_u32(vreinterpretq_u32_s32(byte), poisoned);
}

[[gnu::always_inline]] inline uint8x16_t low_bytes(const uint32x4_t v[4]) {
  const uint16x8_t a = vuzp1q_u16(vreinterpretq_u16_u32(v[0]), vreinterpretq_u16_u32(v[1]));
  const uint16x8_t b = vuzp1q_u16(vreinterpretq_u16_u32(v[2]), vreinterpretq_u16_u32(v[3]));
  return vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}

}  // namespace
}  // namespace octavo::cpu
