// Decodes one code to one f32, exactly, for every format that f32 holds: the field is shifted to
// f32's position, then one exact product corrects the exponent, subnormals included.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "octavo/backend/cuda/convert/element_plans.h"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/tensor/dtype.h"

namespace octavo::cuda {

inline constexpr std::uint32_t kQuietNan = 0x7FC00000u;

template <DecodeKind kKind>
__device__ __forceinline__ std::uint32_t decode_element(const DecodePlan& plan,
                                                        std::uint32_t code) {
  if constexpr (kKind == DecodeKind::powers) {
    const std::uint32_t field = code & 0xFFu, bits = field == 0u ? 0x400000u : field << 23;
    return field == 0xFFu ? kQuietNan : bits;
  }
  constexpr bool kInf = kKind == DecodeKind::ieee || kKind == DecodeKind::specials;
  constexpr bool kNanIsZero = kKind == DecodeKind::fnuz || kKind == DecodeKind::specials;
  if constexpr (kNanIsZero) code &= plan.code_mask;  // to compare the whole code
  const std::uint32_t field = code & plan.magnitude_mask;
  if constexpr (kKind == DecodeKind::integers) {
    const int whole = static_cast<int>(field) - static_cast<int>(code & plan.sign_mask);
    return __float_as_uint(static_cast<float>(whole) * plan.scale);
  }
  std::uint32_t bits = __float_as_uint(__uint_as_float(field << plan.up_shift) * plan.scale);
  if constexpr (kKind != DecodeKind::fnuz) {
    if (field >= plan.special) bits = kQuietNan;
  }
  if constexpr (kInf) {
    if (field == plan.inf_field) bits = 0x7F800000u;
  }
  bits |= (code & plan.sign_mask) << plan.sign_shift;
  if constexpr (kNanIsZero) {
    if (code == plan.nan_code) bits = kQuietNan;
  }
  return bits;
}

// Rounds f32 to 16 bits, to nearest even. NaN is kQuietNan or its negative, which this keeps.
__device__ __forceinline__ std::uint32_t narrowed_to_bf16(std::uint32_t bits) {
  return bits + 0x7FFFu + (bits >> 16 & 1u);  // in the high half
}
__device__ __forceinline__ std::uint32_t narrowed_to_f16(std::uint32_t bits) {
  const std::uint32_t half = __half_as_ushort(__float2half_rn(__uint_as_float(bits)));
  return (bits & 0x7FFFFFFFu) > 0x7F800000u ? (bits >> 16 & 0x8000u) | 0x7E00u : half;
}

// Stores eight values; `at` counts vectors. kExact: every value is a bf16.
template <DType kType, bool kExact = false>
__device__ __forceinline__ void store_values(void* to, std::int64_t at,
                                             const std::uint32_t (&bits)[8]) {
  if constexpr (kType == DType::f32) {
    auto* words = static_cast<uint4*>(to) + at * 2;
    store_once(words, uint4{bits[0], bits[1], bits[2], bits[3]});
    store_once(words + 1, uint4{bits[4], bits[5], bits[6], bits[7]});
  } else if constexpr (kType == DType::bf16) {
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pairs[i] = __byte_perm(kExact ? bits[2 * i] : narrowed_to_bf16(bits[2 * i]),
                             kExact ? bits[2 * i + 1] : narrowed_to_bf16(bits[2 * i + 1]), 0x7632);
    store_once(static_cast<uint4*>(to) + at, uint4{pairs[0], pairs[1], pairs[2], pairs[3]});
  } else {
    std::uint32_t half[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) half[i] = narrowed_to_f16(bits[i]);
    store_once(static_cast<uint4*>(to) + at,
               uint4{half[0] | half[1] << 16, half[2] | half[3] << 16, half[4] | half[5] << 16,
                     half[6] | half[7] << 16});
  }
}

}  // namespace octavo::cuda
