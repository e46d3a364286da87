// Interleaving of packed panels of 4-byte words (f32, or four int8).
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace octavo::cpu {
namespace {

// [count][words] to [words][count]: four rows at a time, four words each, is a 4 x 4 transpose.
void interleave_words(const std::byte* const* rows, int count, std::int64_t words,
                      std::byte* panel) {
  auto* to = reinterpret_cast<std::uint32_t*>(panel);
  for (int r = 0; r < count; r += 4) {
    // Bytes: rows of integers begin anywhere.
    const auto four = [&](int row, std::int64_t w) {
      return vreinterpretq_u32_u8(
          vld1q_u8(reinterpret_cast<const std::uint8_t*>(rows[r + row]) + 4 * w));
    };
    std::int64_t w = 0;
    for (; w + 4 <= words; w += 4) {
      const uint32x4_t x0 = four(0, w), x1 = four(1, w), x2 = four(2, w), x3 = four(3, w);
      const uint64x2_t low01 = vreinterpretq_u64_u32(vzip1q_u32(x0, x1)),
                       high01 = vreinterpretq_u64_u32(vzip2q_u32(x0, x1)),
                       low23 = vreinterpretq_u64_u32(vzip1q_u32(x2, x3)),
                       high23 = vreinterpretq_u64_u32(vzip2q_u32(x2, x3));
      std::uint32_t* at = to + w * count + r;
      vst1q_u32(at, vreinterpretq_u32_u64(vzip1q_u64(low01, low23)));
      vst1q_u32(at + count, vreinterpretq_u32_u64(vzip2q_u64(low01, low23)));
      vst1q_u32(at + 2 * count, vreinterpretq_u32_u64(vzip1q_u64(high01, high23)));
      vst1q_u32(at + 3 * count, vreinterpretq_u32_u64(vzip2q_u64(high01, high23)));
    }
    for (; w < words; ++w)
      for (int i = 0; i < 4; ++i) std::memcpy(to + w * count + r + i, rows[r + i] + 4 * w, 4);
  }
}

}  // namespace
}  // namespace octavo::cpu
