// Eight scaled values to eight codes, in the quickest way there is for the format. Values are
// finite: what is not has poisoned its tile, and is written over.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/device/encode_lane.cuh"
#include "octavo/backend/cuda/device/hardware_cvt.cuh"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/fast_scale.h"

namespace octavo::cuda {

// e2m1 has 0 1/2 1 3/2 | 2 3 | 4 6: in each binade E from 0 on, steps of 2^(E-1). Adding 2^(E+22)
// to a magnitude makes f32 itself round it, to nearest even, to such a step; the low bits of the
// sum are the steps, its exponent says which binade. Eight nibbles are put together by sums, what
// all of them have too much is taken off at the end.
__device__ __forceinline__ std::uint32_t encode_eight_e2m1(const float (&u)[kVector]) {
  constexpr std::uint32_t kTooMuch = 2u * (127u + 22u);
  std::uint32_t codes = 0;
#pragma unroll
  for (int i = kVector - 1; i >= 0; --i) {
    const float magnitude = fminf(fabsf(u[i]), 6.0F);
    const std::uint32_t binade = __float_as_uint(fmaxf(magnitude, 1.0F)) & 0x7F800000u;
    const std::uint32_t sum =
        __float_as_uint(__fmaf_rn(__uint_as_float(binade), 0x1p22F, magnitude));
    const std::uint32_t sign = __umulhi(__float_as_uint(u[i]), 1u << 4);
    codes = codes * 16u + __umulhi(sum, 1u << 10) + ((sum & 7u) | (sign & 8u));
  }
  constexpr std::uint32_t kOnes = 0x11111111u;
  return codes - kTooMuch * kOnes;
}

// Codes of eight values as they lie in memory: two words of bytes, or one of nibbles (in x).
template <FastElement kElement>
__device__ __forceinline__ uint2 encode_eight(const float (&u)[kVector], const LaneEncode& lane,
                                              std::uint32_t (&loose)[kVector]) {
  if constexpr (kElement == FastElement::e4m3 || kElement == FastElement::e5m2) {
    constexpr bool kE5m2 = kElement == FastElement::e5m2;
    return {hardware_four<kE5m2>(u[0], u[1], u[2], u[3]),
            hardware_four<kE5m2>(u[4], u[5], u[6], u[7])};
  } else if constexpr (kElement == FastElement::e2m1) {
    return {encode_eight_e2m1(u), 0u};
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      loose[i] =
          encode_lane<Rounding::nearest_even, LaneKind::one_nan>(lane, __float_as_uint(u[i]), 0u);
    return {0u, 0u};
  }
}

// The largest magnitude of a vector as the bits of f32, NaN and Inf above all else.
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
