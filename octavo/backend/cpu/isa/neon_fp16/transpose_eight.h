// 8 x 8 transpose of 16-bit elements in registers: three rounds of pairs (TRN).
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace octavo::cpu {

// Stores column i to to + i * pitch.
[[gnu::always_inline]] inline void store_transposed(const uint16x8_t (&rows)[8], std::uint16_t* to,
                                                    std::int64_t pitch) {
  uint32x4_t y[8];
  uint64x2_t z[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    y[i] = vreinterpretq_u32_u16(vtrn1q_u16(rows[i], rows[i + 1]));
    y[i + 1] = vreinterpretq_u32_u16(vtrn2q_u16(rows[i], rows[i + 1]));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const int at = i / 2 * 4 + i % 2;
    z[at] = vreinterpretq_u64_u32(vtrn1q_u32(y[at], y[at + 2]));
    z[at + 2] = vreinterpretq_u64_u32(vtrn2q_u32(y[at], y[at + 2]));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    vst1q_u16(to + i * pitch, vreinterpretq_u16_u64(vtrn1q_u64(z[i], z[i + 4])));
    vst1q_u16(to + (i + 4) * pitch, vreinterpretq_u16_u64(vtrn2q_u64(z[i], z[i + 4])));
  }
}

}  // namespace octavo::cpu
