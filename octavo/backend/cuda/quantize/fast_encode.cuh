// Encodes eight scaled values to eight codes, by the fastest method for the format. Values are
// finite: non-finite ones have poisoned their tile, and their codes are overwritten.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/convert/encode_element.cuh"
#include "octavo/backend/cuda/device/hardware_cvt.cuh"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/quantize/fast_scale.h"

namespace octavo::cuda {

// e2m1 has 0 1/2 1 3/2 | 2 3 | 4 6: steps of 1/2, from 2 on of 1, from 4 on of 2. f32 sums round a
// magnitude to them, to nearest even. f32 has steps of 1/2 below 2^23 and of 1 above, so the bits
// of |u| + (2^23 - 2) count codes for |u| up to 4; beyond they are too large. Those of |u| / 2 +
// 2^23 count codes from 4 on; below they are too large. The code is the minimum of both and 7, for
// every f32, Inf and NaN included. Eight nibbles are combined by multiply-add, and their common
// excess is subtracted at the end.
__device__ __forceinline__ std::uint32_t encode_eight_e2m1(const float (&u)[kVector]) {
  constexpr std::uint32_t kZero = 0x4AFFFFFCu;  // 2^23 - 2
  constexpr std::uint32_t kOnes = 0x11111111u;
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = kVector - 1; i >= 0; --i) {
    const float magnitude = fabsf(u[i]);
    const float small = magnitude + (0x1p23F - 2.0F);
    const float large = __fmaf_rn(magnitude, 0.5F, 0x1p23F);
    codes = codes * 16u + __vimin3_u32(__float_as_uint(small), __float_as_uint(large), kZero + 7u);
  }
  return (codes - kZero * kOnes) | sign_bytes(u[0], u[2], u[4], u[6]) >> 4 |
         sign_bytes(u[1], u[3], u[5], u[7]);
}

// Codes of eight values in memory order: two words of bytes, or one of nibbles (in x).
template <FastElement kElement>
__device__ __forceinline__ uint2 encode_eight(const float (&u)[kVector], const EncodePlan& lane,
                                              std::uint32_t (&loose)[kVector]) {
  if constexpr (kElement == FastElement::e4m3 || kElement == FastElement::e5m2) {
    return hardware_eight<kElement == FastElement::e5m2>(u);
  } else if constexpr (kElement == FastElement::e2m1) {
    return {encode_eight_e2m1(u), 0u};
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      loose[i] = encode_element<Rounding::nearest_even, EncodeKind::one_nan>(
          lane, __float_as_uint(u[i]), 0u);
    return {0u, 0u};
  }
}

// The largest magnitude of a vector as f32 bits, with NaN and Inf above all else.
template <DType kSource>
__device__ __forceinline__ std::uint32_t vector_amax(const Raw<kSource>& raw) {
  if constexpr (kSource != DType::f32) {
    const unsigned two = halves_amax(raw.words[0]);
    return widened_magnitude<kSource>(max(two << 16, two & 0xFFFF0000u));
  } else {
    std::uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < kVector; ++i) most = max(most, f32_bits<kSource>(raw, i) & 0x7FFFFFFFu);
    return most;
  }
}

}  // namespace octavo::cuda
