// Arithmetic of two f16 in a word, as the packed softmax of the forward kernel uses it.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace octavo::cuda {

using HalfPair = std::uint32_t;

__device__ __forceinline__ HalfPair pair_max_or_nan(HalfPair a, HalfPair b) {
  HalfPair most;
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
}
__device__ __forceinline__ HalfPair pair_max(HalfPair a, HalfPair b) {
  HalfPair most;
  asm("max.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
}
__device__ __forceinline__ HalfPair pair_add(HalfPair a, HalfPair b) {
  HalfPair sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}
__device__ __forceinline__ HalfPair pair_subtract(HalfPair a, HalfPair b) {
  HalfPair difference;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(a), "r"(b));
  return difference;
}
__device__ __forceinline__ HalfPair pair_multiply(HalfPair a, HalfPair b) {
  HalfPair product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
__device__ __forceinline__ HalfPair pair_multiply_add(HalfPair a, HalfPair b, HalfPair c) {
  HalfPair sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}
__device__ __forceinline__ HalfPair both_halves(float x) {
  HalfPair pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(pair) : "f"(x));
  return pair;
}
__device__ __forceinline__ float2 pair_values(HalfPair pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

// Within 9e-4 relative.
__device__ __forceinline__ HalfPair pair_exp2(HalfPair x) {
  HalfPair power;
  asm("ex2.approx.f16x2 %0, %1;" : "=r"(power) : "r"(x));
  return power;
}
// On the FMA pipes, for x of at most 8; within 2.6e-3 relative, and 2^-14 below that. x is split
// into n + f, a quadratic in f gives 2^f, and n is added to the exponents of both halves at once:
// 1550 = 1536 + 14, so the low bits of x + 1550 are n + 14 >= 0 and nothing carries from one half
// into the other; the constant at the end takes away the 14 and the bits of 1536. Loses NaN.
__device__ __forceinline__ HalfPair pair_exp2_polynomial(HalfPair x) {
  constexpr HalfPair kLeast = 0xCB00CB00u, kShift = 0x660E660Eu;
  x = pair_max(x, kLeast);
  const HalfPair whole = pair_add(x, kShift), rest = pair_subtract(x, pair_subtract(whole, kShift));
  const HalfPair power =
      pair_multiply_add(pair_multiply_add(0x33A133A1u, rest, 0x39A139A1u), rest, 0x3C003C00u);
  return power + (whole << 10) - 0x39983800u;
}

// e4m3 codes and pairs.
__device__ __forceinline__ std::uint32_t e4m3_four(HalfPair low, HalfPair high) {
  std::uint16_t a, b;
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(a) : "r"(low));
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(b) : "r"(high));
  return a | static_cast<std::uint32_t>(b) << 16;
}
__device__ __forceinline__ HalfPair pair_of_e4m3(std::uint16_t codes) {
  HalfPair pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes));
  return pair;
}
__device__ __forceinline__ float sum_of_magnitudes(std::uint32_t four) {
  four &= 0x7F7F7F7Fu;
  const float2 low = pair_values(pair_of_e4m3(static_cast<std::uint16_t>(four))),
               high = pair_values(pair_of_e4m3(static_cast<std::uint16_t>(four >> 16)));
  return (low.x + low.y) + (high.x + high.y);
}
__device__ __forceinline__ std::uint32_t scaled_codes(std::uint32_t four, HalfPair by) {
  return e4m3_four(pair_multiply(pair_of_e4m3(static_cast<std::uint16_t>(four)), by),
                   pair_multiply(pair_of_e4m3(static_cast<std::uint16_t>(four >> 16)), by));
}

}  // namespace octavo::cuda
