// One f32 to one code in integer arithmetic, for every format whose grid f32 can hold and every
// rounding: the definition of round/encode.h with all that does not depend on the value worked out
// on the host. Constants arrive as kernel arguments, which instructions read for free.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/lane_plans.h"
#include "octavo/round/policy.h"

namespace octavo::cuda {

template <Rounding kRounding>
__device__ __forceinline__ std::uint32_t round_up_bits(std::uint32_t v, std::uint32_t shift,
                                                       bool negative) {
  const std::uint32_t low = (1u << shift) - 1u;
  if constexpr (kRounding == Rounding::nearest_even) return (low >> 1) + (v >> shift & 1u);
  if constexpr (kRounding == Rounding::nearest_away) return (low >> 1) + 1u;
  if constexpr (kRounding == Rounding::up) return negative ? 0u : low;
  if constexpr (kRounding == Rounding::down) return negative ? low : 0u;
  if constexpr (kRounding == Rounding::to_odd) return v >> shift & 1u ? 0u : low;
  return 0u;
}

// The field of a finite magnitude, rounded.
template <Rounding kRounding>
__device__ __forceinline__ std::uint32_t rounded_field(const LaneEncode& plan,
                                                       std::uint32_t magnitude, bool negative,
                                                       std::uint32_t random) {
  const std::uint32_t raw = magnitude >> 23, exponent = max(raw, 1u);
  const std::uint32_t significand = (magnitude & 0x7FFFFFu) | (raw != 0u ? 0x800000u : 0u);
  const std::uint32_t binade = max(exponent, plan.min_field);
  const std::uint32_t shift = plan.shift + (binade - exponent);
  if constexpr (kRounding == Rounding::stochastic) {
    const std::uint32_t n = plan.stochastic_bits, least = min(shift, n);
    const std::uint32_t scaled = (significand >> min(shift - least, 31u)) << (n - least);
    return ((scaled + random) >> n) + ((binade - plan.min_field) << plan.mantissa_bits);
  } else {
    // With the exponent left in, so that the parity of a field is that of its lowest bit.
    const std::uint32_t v =
        binade > exponent || raw == 0u ? significand : magnitude - ((plan.min_field - 1u) << 23);
    const std::uint32_t near = min(shift, 30u);  // further down all is below a half already
    return (v + round_up_bits<kRounding>(v, near, negative)) >> near;
  }
}

// As an exponent field of eight bits below which nothing is subnormal: 2^-127 is 0.
template <Rounding kRounding>
__device__ __forceinline__ std::uint32_t e8m0_field(const LaneEncode& plan, std::uint32_t magnitude,
                                                    std::uint32_t random) {
  const bool below_normal = magnitude < 0x800000u;
  const std::uint32_t v = !below_normal            ? magnitude
                          : magnitude >= 0x400000u ? (magnitude << 1) - 0x800000u
                                                   : 0u;
  if (plan.tiny_rounds_up != 0u && below_normal && v != 0u) return 1u;
  if constexpr (kRounding == Rounding::stochastic) {
    const std::uint32_t n = plan.stochastic_bits;
    return (v >> 23) + ((((v & 0x7FFFFFu) >> (23u - n)) + random) >> n);
  } else {
    // The first field is even, and the parity of a field is that of its code.
    return (v + round_up_bits<kRounding>(v, 23u, false)) >> 23;
  }
}

template <Rounding kRounding, LaneKind kKind>
__device__ __forceinline__ std::uint32_t encode_lane(const LaneEncode& plan, std::uint32_t bits,
                                                     std::uint32_t random) {
  constexpr std::uint32_t kInf = 0x7F800000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const bool below_zero = bits > 0x7FFFFFFFu;
  if constexpr (kKind == LaneKind::plain) {
    const std::uint32_t limit = below_zero ? plan.limit[1] : plan.limit[0];
    const std::uint32_t field =
        rounded_field<kRounding>(plan, min(magnitude, limit), below_zero, random);
    const std::uint32_t sign = (bits & 0x80000000u) >> plan.sign_shift;
    std::uint32_t code = field != 0u || plan.zero_keeps_sign != 0u ? field | sign : 0u;
    const std::uint32_t inf = below_zero ? plan.inf_code[1] : plan.inf_code[0];
    const std::uint32_t nan = below_zero ? plan.nan_code[1] : plan.nan_code[0];
    if (magnitude >= kInf) code = magnitude > kInf ? nan : inf;
    return code;
  } else {
    const bool negative = below_zero && plan.is_signed != 0u;
    const std::uint32_t finite = min(magnitude, negative ? plan.limit[1] : plan.limit[0]);
    const std::uint32_t field = kKind == LaneKind::e8m0
                                    ? e8m0_field<kRounding>(plan, finite, random)
                                    : rounded_field<kRounding>(plan, finite, negative, random);
    std::uint32_t code = field;
    if (negative && plan.negate != 0u) {
      code = (0u - field) & plan.code_mask;
    } else if (negative && (field != 0u || plan.zero_keeps_sign != 0u)) {
      code = field | 0x80000000u >> plan.sign_shift;
    }
    if (magnitude == kInf) code = negative ? plan.inf_code[1] : plan.inf_code[0];
    if (magnitude == 0u && kKind == LaneKind::e8m0) code = plan.zero_code;
    if (below_zero && magnitude != 0u && plan.negative_special != 0u) code = plan.negative_code;
    if (magnitude > kInf) code = negative ? plan.nan_code[1] : plan.nan_code[0];
    return code;
  }
}

}  // namespace octavo::cuda
