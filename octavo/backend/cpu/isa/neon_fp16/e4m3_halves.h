// Sixteen codes of e4m3 as f16. A code shifted left by seven in sixteen bits is an f16, 2^-8 of its
// value, except for one bit that its sign has been copied to: two operations for eight codes,
// subnormal ones included. NaN reads as 480, so callers check the largest field.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace octavo::cpu {
namespace {

constexpr std::uint8_t kNanField = 0x7F;

struct E4m3Halves {
  float16x8_t low, high;
  [[gnu::always_inline]] explicit E4m3Halves(uint8x16_t codes) {
    const int8x16_t code = vreinterpretq_s8_u8(codes);
    // The lowest bits are zero already; a mask that leaves them in is an immediate operand to
    // compilers, and that instruction overwrites its source.
    const uint16x8_t keep = vdupq_n_u16(0xBF80);
    low = vreinterpretq_f16_u16(
        vandq_u16(vreinterpretq_u16_s16(vshll_n_s8(vget_low_s8(code), 7)), keep));
    high = vreinterpretq_f16_u16(vandq_u16(vreinterpretq_u16_s16(vshll_high_n_s8(code, 7)), keep));
  }
};

[[gnu::always_inline]] inline uint8x16_t load_codes(const std::byte* from) {
  return vld1q_u8(reinterpret_cast<const std::uint8_t*>(from));
}
[[gnu::always_inline]] inline uint8x16_t fields_of(uint8x16_t codes) {
  return vandq_u8(codes, vdupq_n_u8(kNanField));
}

// Pairwise sum: eight f16 lanes to four of f32.
[[gnu::always_inline]] inline float32x4_t pairwise_sum(float16x8_t sum) {
  return vaddq_f32(vcvt_f32_f16(vget_low_f16(sum)), vcvt_high_f32_f16(sum));
}

}  // namespace
}  // namespace octavo::cpu
