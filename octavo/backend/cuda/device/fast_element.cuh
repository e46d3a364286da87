// Eight scaled values to eight codes, in the quickest way there is for the format. Values are
// finite: what is not has poisoned its tile, and is written over.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/device/encode_lane.cuh"
#include "octavo/backend/cuda/device/hardware_cvt.cuh"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/fast_scale.h"

namespace octavo::cuda {

// e2m1 has 0 1/2 1 3/2 | 2 3 | 4 6: in each binade E from 1 on, steps of 2^(E-1). Adding 2^(E+22)
// to a magnitude makes f32 itself round it, to nearest even, to such a step.
__device__ __forceinline__ std::uint32_t encode_e2m1(float u) {
  const float magnitude = fminf(fabsf(u), 8.0F);
  const std::uint32_t binade = max(__float_as_uint(magnitude) & 0x7F800000u, 0x3F800000u);
  const std::uint32_t magic = binade + (22u << 23);
  const std::uint32_t steps = __float_as_uint(magnitude + __uint_as_float(magic)) - magic;
  const std::uint32_t field = min(steps + (binade >> 22) - 254u, 7u);
  return field | (__float_as_uint(u) >> 28 & 8u);
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
#pragma unroll
    for (int i = 0; i < kVector; ++i) loose[i] = encode_e2m1(u[i]);
    return {packed_nibbles(loose), 0u};
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      loose[i] =
          encode_lane<Rounding::nearest_even, LaneKind::quick>(lane, __float_as_uint(u[i]), 0u);
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
