// The codes of special cases, sixteen of each: values beyond the range, infinities and NaN.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {
namespace {

struct SpecialCodes {
  uint8x16_t limit[2], inf[2], nan[2];  // codes without and with sign: the limit has none

  explicit SpecialCodes(const Encoder& encoder) {
    const auto bytes = [](std::uint32_t code) {
      return vdupq_n_u8(static_cast<std::uint8_t>(code));
    };
    for (std::size_t s = 0; s < 2; ++s) {
      limit[s] = bytes(encoder.overflow_field[s]);
      inf[s] = bytes(encoder.inf_code[s]);
      nan[s] = bytes(encoder.nan_code[s]);
    }
  }
};

}  // namespace
}  // namespace octavo::cpu
