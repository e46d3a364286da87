// Hopper's cvt instructions to e4m3 and e5m2: nearest even, saturating, two values at a time. They
// return every NaN as 0x7F; callers restore the sign from the source where octavo keeps it.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/device/vectors.cuh"

namespace octavo::cuda {

template <bool kE5m2>
__device__ __forceinline__ std::uint32_t hardware_pair(float low, float high) {
  std::uint16_t pair;
  if constexpr (kE5m2) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// The sign bits of four values as the top bits of four bytes.
__device__ __forceinline__ std::uint32_t sign_bytes(float a, float b, float c, float d) {
  const std::uint32_t ab = __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x0073);
  const std::uint32_t cd = __byte_perm(__float_as_uint(c), __float_as_uint(d), 0x0073);
  return __byte_perm(ab, cd, 0x5410) & 0x80808080u;
}

// Four values to the four bytes of a word.
template <bool kE5m2>
__device__ __forceinline__ std::uint32_t hardware_four(float a, float b, float c, float d) {
  return hardware_pair<kE5m2>(a, b) | hardware_pair<kE5m2>(c, d) << 16;
}

// By cvt: every NaN is the positive one.
template <bool kE5m2>
__device__ __forceinline__ uint2 hardware_eight(const float (&u)[kVector]) {
  return {hardware_four<kE5m2>(u[0], u[1], u[2], u[3]),
          hardware_four<kE5m2>(u[4], u[5], u[6], u[7])};
}
// ORs in the signs of the source values; codes of numbers have them already.
__device__ __forceinline__ void put_signs(uint2& codes, const float (&x)[kVector]) {
  codes.x |= sign_bytes(x[0], x[1], x[2], x[3]);
  codes.y |= sign_bytes(x[4], x[5], x[6], x[7]);
}

}  // namespace octavo::cuda
