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

// Steps of a magnitude on the grid of its binade. Adding 2^(E + 23 - mantissa bits) to it makes f32
// itself round at that grid, in a direction if one is asked for; what the sum has more than the
// addend are the steps.
template <Rounding kRounding>
__device__ __forceinline__ std::uint32_t quick_steps(const LaneEncode& plan, std::uint32_t binade,
                                                     float magnitude, std::uint32_t sign,
                                                     std::uint32_t random) {
  const std::uint32_t magic = binade + plan.magic;
  const float addend = __uint_as_float(magic);
  if constexpr (kRounding == Rounding::nearest_even) {
    return __float_as_uint(__fadd_rn(magnitude, addend)) - magic;
  } else if constexpr (kRounding == Rounding::toward_zero) {
    return __float_as_uint(__fadd_rz(magnitude, addend)) - magic;
  } else if constexpr (kRounding == Rounding::up || kRounding == Rounding::down) {
    const float a = __uint_as_float(__float_as_uint(magnitude) | sign);
    const float b = __uint_as_float(magic | sign);
    const float sum = kRounding == Rounding::up ? __fadd_ru(a, b) : __fadd_rd(a, b);
    return (__float_as_uint(sum) & 0x7FFFFFFFu) - magic;
  } else if constexpr (kRounding == Rounding::nearest_away) {
    // In half steps, cut off.
    const std::uint32_t half = magic - (1u << 23);
    const float sum = __fadd_rz(magnitude, __uint_as_float(half));
    return (__float_as_uint(sum) - half + 1u) >> 1;
  } else if constexpr (kRounding == Rounding::to_odd) {
    const std::uint32_t below = __float_as_uint(__fadd_rz(magnitude, addend)) - magic;
    const std::uint32_t above = __float_as_uint(__fadd_ru(magnitude, addend)) - magic;
    return below | (above - below);
  } else {
    const std::uint32_t finer = magic - (plan.stochastic_bits << 23);
    const float sum = __fadd_rz(magnitude, __uint_as_float(finer));
    return (__float_as_uint(sum) - finer + random) >> plan.stochastic_bits;
  }
}

template <Rounding kRounding, bool kIntegers>
__device__ __forceinline__ std::uint32_t encode_quick(const LaneEncode& plan, std::uint32_t bits,
                                                      std::uint32_t random) {
  constexpr bool kTwoLimits = kIntegers || kRounding == Rounding::up || kRounding == Rounding::down;
  const float value = __uint_as_float(bits);
  const std::uint32_t top = bits & 0x80000000u;
  const std::uint32_t limit = kTwoLimits && top != 0u ? plan.limit[1] : plan.limit[0];
  const float magnitude = fminf(fabsf(value), __uint_as_float(limit));  // NaN is cut, too
  const std::uint32_t binade = max(__float_as_uint(magnitude) & 0x7F800000u, plan.min_binade);
  const std::uint32_t field = quick_steps<kRounding>(plan, binade, magnitude, top, random) +
                              (binade >> plan.shift) - plan.first_field;
  const std::uint32_t sign = top >> plan.sign_shift;
  std::uint32_t code;
  if constexpr (kIntegers) {
    code = (top != 0u ? 0u - field : field) & plan.code_mask;
  } else {
    code = field | (field == 0u ? sign & plan.zero_sign : sign);
  }
  if (fabsf(value) > plan.inf_beyond) code = plan.inf_code[0] ^ (sign & plan.inf_flips);
  if (value != value) code = plan.nan_code[0] ^ (sign & plan.nan_flips);
  return code;
}

// Powers of two from 2^-127. As an exponent field of eight bits below which nothing is subnormal:
// 2^-127 is 0.
template <Rounding kRounding>
__device__ __forceinline__ std::uint32_t encode_e8m0(const LaneEncode& plan, std::uint32_t bits,
                                                     std::uint32_t random) {
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t finite = min(magnitude, plan.limit[0]);
  const std::uint32_t tiny = max(finite, 0x400000u) * 2u - 0x800000u;
  const std::uint32_t v = finite >= 0x800000u ? finite : tiny;
  std::uint32_t code;
  if constexpr (kRounding == Rounding::stochastic) {
    const std::uint32_t n = plan.stochastic_bits;
    code = (v >> 23) + ((((v & 0x7FFFFFu) >> (23u - n)) + random) >> n);
  } else {
    code = (v + round_up_bits<kRounding>(v, 23u, false)) >> 23;
  }
  code = magnitude > 0x400000u && magnitude < plan.tiny_below ? 1u : code;
  code = magnitude == 0u ? plan.zero_code : code;
  code = magnitude == 0x7F800000u ? plan.inf_code[0] : code;
  code = bits > plan.negative_beyond ? plan.negative_code : code;
  return magnitude > 0x7F800000u ? plan.nan_code[0] : code;
}

template <Rounding kRounding, LaneKind kKind>
__device__ __forceinline__ std::uint32_t encode_lane(const LaneEncode& plan, std::uint32_t bits,
                                                     std::uint32_t random) {
  if constexpr (kKind == LaneKind::quick) {
    return encode_quick<kRounding, false>(plan, bits, random);
  } else if constexpr (kKind == LaneKind::integers) {
    return encode_quick<kRounding, true>(plan, bits, random);
  } else if constexpr (kKind == LaneKind::e8m0) {
    return encode_e8m0<kRounding>(plan, bits, random);
  }
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t top = bits & plan.signed_top, sign = top >> plan.sign_shift;
  const std::uint32_t limit = top != 0u ? plan.limit[1] : plan.limit[0];
  const std::uint32_t field =
      rounded_field<kRounding>(plan, min(magnitude, limit), top != 0u, random);
  std::uint32_t code = field | (field == 0u ? sign & plan.zero_sign : sign);
  if (magnitude == 0x7F800000u) code = plan.inf_code[0] ^ (sign & plan.inf_flips);
  if (bits > plan.negative_beyond) code = plan.negative_code;
  if (magnitude > 0x7F800000u) code = plan.nan_code[0] ^ (sign & plan.nan_flips);
  return code;
}

}  // namespace octavo::cuda
