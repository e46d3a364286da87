// The K step of microkernels whose sums are f16: MR x NR = 8 x 24, one product for each.
#pragma once

#include <arm_neon.h>

namespace octavo::cpu {
namespace {

constexpr int kHalfRows = 8, kHalfCols = 24, kHalfVectors = kHalfCols / 8;

// kScaledFactor (scaled_exp2_neon.h) for softmax_narrow.h, whose polynomial has other coefficients.
constexpr float kNarrowFactor = 144.48968F;

// By-element FMLA in assembly: GCC 12 copies the lane to a vector first, one more instruction for
// each. The lane operand must be in the first sixteen registers ("x").
template <int kLane>
[[gnu::always_inline]] inline void plus_product(float16x8_t& sum, float16x8_t b, float16x8_t a) {
  asm("fmla %0.8h, %1.8h, %2.h[%3]" : "+w"(sum) : "w"(b), "x"(a), "i"(kLane));
}

template <int kLane>
[[gnu::always_inline]] inline float16x8_t first_product(float16x8_t b, float16x8_t a) {
  float16x8_t product;
  asm("fmul %0.8h, %1.8h, %2.h[%3]" : "=w"(product) : "w"(b), "x"(a), "i"(kLane));
  return product;
}

// Sums begin with the first products.
[[gnu::always_inline]] inline void half_start(const float16_t* a, const float16_t* b,
                                              float16x8_t (&sum)[kHalfRows][kHalfVectors]) {
  const float16x8_t left = vld1q_f16(a);
#pragma GCC unroll 3
  for (int j = 0; j < kHalfVectors; ++j) {
    const float16x8_t right = vld1q_f16(b + 8 * j);
    sum[0][j] = first_product<0>(right, left);
    sum[1][j] = first_product<1>(right, left);
    sum[2][j] = first_product<2>(right, left);
    sum[3][j] = first_product<3>(right, left);
    sum[4][j] = first_product<4>(right, left);
    sum[5][j] = first_product<5>(right, left);
    sum[6][j] = first_product<6>(right, left);
    sum[7][j] = first_product<7>(right, left);
  }
}

[[gnu::always_inline]] inline void half_step(const float16_t* a, const float16_t* b,
                                             float16x8_t (&sum)[kHalfRows][kHalfVectors]) {
  const float16x8_t left = vld1q_f16(a);
#pragma GCC unroll 3
  for (int j = 0; j < kHalfVectors; ++j) {
    const float16x8_t right = vld1q_f16(b + 8 * j);
    plus_product<0>(sum[0][j], right, left);
    plus_product<1>(sum[1][j], right, left);
    plus_product<2>(sum[2][j], right, left);
    plus_product<3>(sum[3][j], right, left);
    plus_product<4>(sum[4][j], right, left);
    plus_product<5>(sum[5][j], right, left);
    plus_product<6>(sum[6][j], right, left);
    plus_product<7>(sum[7][j], right, left);
  }
}

}  // namespace
}  // namespace octavo::cpu
