// The K step of SDOT microkernels, whose sums are int32: MR x NR = 8 x 12, four int8 products for
// each. GEMM and attention scores differ in how sums begin and end.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace octavo::cpu {
namespace {

constexpr int kRows = 8, kCols = 12, kVectors = kCols / 4, kStep = 4;

template <int kRow>
[[gnu::always_inline]] inline int32x4_t plus_products(int32x4_t sum, int8x16_t b, int8x16_t a_low,
                                                      int8x16_t a_high) {
  return vdotq_laneq_s32(sum, b, kRow < 4 ? a_low : a_high, kRow % 4);
}

[[gnu::always_inline]] inline void step(const std::int8_t* a, const std::int8_t* b,
                                        int32x4_t (&sum)[kRows][kVectors]) {
  const int8x16_t low = vld1q_s8(a), high = vld1q_s8(a + 16);
#pragma GCC unroll 3
  for (int j = 0; j < kVectors; ++j) {
    const int8x16_t right = vld1q_s8(b + 16 * j);
    sum[0][j] = plus_products<0>(sum[0][j], right, low, high);
    sum[1][j] = plus_products<1>(sum[1][j], right, low, high);
    sum[2][j] = plus_products<2>(sum[2][j], right, low, high);
    sum[3][j] = plus_products<3>(sum[3][j], right, low, high);
    sum[4][j] = plus_products<4>(sum[4][j], right, low, high);
    sum[5][j] = plus_products<5>(sum[5][j], right, low, high);
    sum[6][j] = plus_products<6>(sum[6][j], right, low, high);
    sum[7][j] = plus_products<7>(sum[7][j], right, low, high);
  }
}

}  // namespace
}  // namespace octavo::cpu
