// Codes of eight bits that are normal numbers, to bf16 in words: shifted to where bf16 has exponent
// and mantissa, sign at the top, and the difference of biases added; 6 operations for sixteen codes
// where byte planes (decode_planes.h) take 13, and 3 to see whether a code is zero, subnormal, Inf
// or NaN. Those are rare: a piece that has one is decoded again by planes.
#pragma once

#include <arm_neon.h>

#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

// Elements of K of a piece.
constexpr std::int64_t kNormalPiece = 32;

template <const Format& kFormat>
class NormalWords {
 public:
  static constexpr bool kFits = kFormat.bits() == 8 && kFormat.mantissa_bits >= 2 &&
                                kFormat.mantissa_bits <= 3 && kFormat.max_field() >= 0x70;
  // The difference of biases, of eight words; a power of two is added to it.
  static constexpr std::uint16_t kBase = static_cast<std::uint16_t>((127 - kFormat.bias) << 7);

  [[gnu::always_inline]] void see(uint8x16_t codes) {
    most_ = vmaxq_u8(most_, vsubq_u8(vshlq_n_u8(codes, 1), vdupq_n_u8(kLeast)));
  }
  [[nodiscard]] [[gnu::always_inline]] bool all_normal() const { return vmaxvq_u8(most_) <= kMax; }

  [[gnu::always_inline]] static uint16x8_t low(uint8x16_t codes, uint16x8_t base) {
    return placed(vshll_n_s8(vget_low_s8(vreinterpretq_s8_u8(codes)), kShift), base);
  }
  [[gnu::always_inline]] static uint16x8_t high(uint8x16_t codes, uint16x8_t base) {
    return placed(vshll_high_n_s8(vreinterpretq_s8_u8(codes), kShift), base);
  }

 private:
  static constexpr int kShift = 7 - static_cast<int>(kFormat.mantissa_bits);
  // Twice a magnitude less the least normal one: what is below it is above all others then.
  static constexpr std::uint8_t kLeast = 2u << kFormat.mantissa_bits;
  static constexpr std::uint8_t kMax = 2 * kFormat.max_field() - kLeast;

  [[gnu::always_inline]] static uint16x8_t placed(int16x8_t shifted, uint16x8_t base) {
    const uint16x8_t mask = vdupq_n_u16(static_cast<std::uint16_t>(0x8000 | 0x7F << kShift));
    return vaddq_u16(vandq_u16(vreinterpretq_u16_s16(shifted), mask), base);
  }

  uint8x16_t most_ = vdupq_n_u8(0);
};

}  // namespace
}  // namespace octavo::cpu
