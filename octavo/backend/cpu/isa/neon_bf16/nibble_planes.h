// Byte planes (decode_planes.h) of codes of four bits.
#pragma once

#include <arm_neon.h>

#include "octavo/backend/cpu/isa/neon/decode_planes.h"

namespace octavo::cpu {
namespace {

// The results of sixteen codes.
struct NibbleTable {
  std::uint8_t lows[16]{}, highs[16]{};

  explicit constexpr NibbleTable(const Format& format) {
    for (std::uint32_t code = 0; code < 16; ++code) {
      const std::uint32_t magnitude = target_bits<BfloatTarget>(format, code & 7),
                          bits = magnitude | (code & 8) << 12;
      lows[code] = static_cast<std::uint8_t>(bits);
      highs[code] = static_cast<std::uint8_t>(bits >> 8);
    }
  }
};

// e2m1fn: all sixteen codes are in two registers, signs included.
struct NibblePlanes {
  uint8x16_t low, high;

  template <const Format& kFormat>
  static NibblePlanes of() {
    constexpr Format kCopy = kFormat;  // a reference to the constant itself would be a symbol
    static constexpr NibbleTable kTable(kCopy);
    return {vld1q_u8(kTable.lows), vld1q_u8(kTable.highs)};
  }
  // Zero of either sign is the same code then.
  void lift() {
    const uint8x16_t magnitude = vandq_u8(high, vdupq_n_u8(0x7F)),
                     sign = vbicq_u8(high, vdupq_n_u8(0x7F)), up = lifted(low, magnitude);
    high = vorrq_u8(up, vandq_u8(sign, vtstq_u8(up, up)));
  }
  [[gnu::always_inline]] Planes operator()(uint8x16_t code) const {
    return {vqtbl1q_u8(low, code), vqtbl1q_u8(high, code)};
  }
};

}  // namespace
}  // namespace octavo::cpu
