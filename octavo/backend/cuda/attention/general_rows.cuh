// Pieces of the general attention kernel: elements as sums take them, P rounded to its type, and
// the softmax of a row of scores that arrives in tiles.
#pragma once

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>

#include "octavo/backend/attention_dropout_mask.h"
#include "octavo/backend/attention_job.h"
#include "octavo/backend/attention_sink.h"
#include "octavo/backend/cuda/device/elements.cuh"
#include "octavo/backend/cuda/device/hardware_cvt.cuh"

namespace octavo::cuda {

// Rounded to nearest even once: to odd in f32 first, which leaves the rounding to bf16 exact.
__device__ __forceinline__ float bf16_of(double number) {
  float odd = __double2float_rz(number);
  if (static_cast<double>(odd) != number && number == number)
    odd = __uint_as_float(__float_as_uint(odd) | 1u);
  return __bfloat162float(__float2bfloat16_rn(odd));
}

// A value as a job's sums take it.
__device__ __forceinline__ void load_number(const Matrix& of, std::int64_t row, std::int64_t col,
                                            bool to_bf16, float& number) {
  if (to_bf16 && of.dtype == DType::f64) {
    number = bf16_of(load_value(of, row, col));
    return;
  }
  number = load_float(of, row, col);
  if (to_bf16) number = __bfloat162float(__float2bfloat16_rn(number));
}
__device__ __forceinline__ void load_number(const Matrix& of, std::int64_t row, std::int64_t col,
                                            bool to_bf16, double& number) {
  number = load_value(of, row, col);
  if (to_bf16) number = static_cast<double>(bf16_of(number));
}

// To e4m3 and back; numbers are from 0 to 448.
__device__ __forceinline__ float e4m3_nearest(float number) {
  const std::uint32_t code = hardware_pair</*kE5m2=*/false>(number, 0.0F) & 0xFFu;
  const std::uint32_t exponent = code >> 3, mantissa = code & 7u;
  return exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9F
                       : __uint_as_float((exponent + 120u) << 23 | mantissa << 20);
}
__device__ __forceinline__ float e4m3_toward_zero(float number) {
  return number < 0x1p-6F ? truncf(number * 512.0F) * 0x1p-9F
                          : __uint_as_float(__float_as_uint(number) & 0xFFF00000u);
}

// P, its factor included, rounded to its type.
__device__ __forceinline__ float rounded_p(AttentionP form, float p) {
  switch (form) {
    case AttentionP::bf16:
      return __bfloat162float(__float2bfloat16_rn(p));
    case AttentionP::fp8:
    case AttentionP::fp8_normalized:
      return e4m3_nearest(p);
    case AttentionP::fp8_split: {
      const float high = e4m3_toward_zero(p);
      return high + e4m3_nearest(p - high);
    }
    default:
      return p;
  }
}
__device__ __forceinline__ double rounded_p(AttentionP form, double p) {
  if (form == AttentionP::f64) return p;
  if (form == AttentionP::bf16) return static_cast<double>(bf16_of(p));
  return static_cast<double>(rounded_p(form, static_cast<float>(p)));
}

// 2^difference of two integers, of which the second is no smaller: exact.
template <typename Real>
__device__ __forceinline__ Real power_of_two(Real difference) {
  return ldexp(Real{1}, static_cast<int>(fmax(difference, Real{-2000})));
}

// Sixteen neighbouring lanes share a row.
inline constexpr int kLanesOfRow = 16;
template <typename Real>
__device__ __forceinline__ Real most_of_row(Real number) {
#pragma unroll
  for (int step = kLanesOfRow / 2; step > 0; step /= 2)
    number = fmax(number, __shfl_xor_sync(0xFFFFFFFFu, number, step));
  return number;
}
template <typename Real>
__device__ __forceinline__ Real sum_of_row(Real number) {
#pragma unroll
  for (int step = kLanesOfRow / 2; step > 0; step /= 2)
    number += __shfl_xor_sync(0xFFFFFFFFu, number, step);
  return number;
}

// The softmax of a row so far. Sums are of a lane's own keys until `join`.
template <typename Real>
struct RowSoftmax {
  Real top = -HUGE_VAL, largest = -HUGE_VAL;  // M, and the largest score
  Real sum = 0, exact_sum = 0, squares = 0;   // of P, of p and of p squared
  bool poisoned = false;                      // sees a NaN, or a score of +inf

  // Takes the largest score of a tile, the same in every lane; returns what sums shrink by.
  __device__ __forceinline__ Real raise(Real tile_largest) {
    largest = fmax(largest, tile_largest);
    const Real higher = fmax(top, ceil(tile_largest));
    if (higher == Real{-HUGE_VAL}) return Real{1};
    const Real factor = top == Real{-HUGE_VAL} ? Real{0} : power_of_two(top - higher);
    top = higher;
    sum *= factor;
    exact_sum *= factor;
    squares *= factor * factor;
    return factor;
  }
  __device__ __forceinline__ void join() {
    sum = sum_of_row(sum);
    exact_sum = sum_of_row(exact_sum);
    squares = sum_of_row(squares);
    poisoned = sum_of_row(poisoned ? 1.0F : 0.0F) != 0.0F;
  }
  [[nodiscard]] __device__ __forceinline__ bool empty() const {
    return !poisoned && largest == Real{-HUGE_VAL};
  }
};

}  // namespace octavo::cuda
