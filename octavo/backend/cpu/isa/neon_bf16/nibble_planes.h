// Byte planes (decode_planes.h) of codes of four bits.
#pragma once

#include <arm_neon.h>

#include "octavo/backend/cpu/isa/neon/decode_planes.h"

namespace octavo::cpu {
namespace {

// e2m1fn: all sixteen codes are in two registers, signs included.
struct NibblePlanes {
  uint8x16_t low, high;

  explicit NibblePlanes(const Format& format) {
    std::uint8_t lows[16], highs[16];
    for (std::uint32_t code = 0; code < 16; ++code) {
      const std::uint32_t bits = target_bits<BfloatTarget>(format, code);
      lows[code] = static_cast<std::uint8_t>(bits);
      highs[code] = static_cast<std::uint8_t>(bits >> 8);
    }
    low = vld1q_u8(lows);
    high = vld1q_u8(highs);
  }
  [[gnu::always_inline]] Planes operator()(uint8x16_t code) const {
    return {vqtbl1q_u8(low, code), vqtbl1q_u8(high, code)};
  }
};

}  // namespace
}  // namespace octavo::cpu
