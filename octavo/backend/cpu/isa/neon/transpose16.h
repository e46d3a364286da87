// 16 x 16 byte transpose in registers.
#pragma once

#include <arm_neon.h>

namespace octavo::cpu {
namespace {

// Transposes 16 x 16 bytes: row i of `rows` becomes column i.
[[gnu::always_inline]] inline void transpose16(uint8x16_t rows[16]) {
  uint8x16_t other[16];
  const auto weave = [](const uint8x16_t* in, uint8x16_t* out) {
    for (int i = 0; i < 8; ++i) {
      out[2 * i] = vzip1q_u8(in[i], in[i + 8]);
      out[2 * i + 1] = vzip2q_u8(in[i], in[i + 8]);
    }
  };
  weave(rows, other);
  weave(other, rows);
  weave(rows, other);
  weave(other, rows);
}

}  // namespace
}  // namespace octavo::cpu
