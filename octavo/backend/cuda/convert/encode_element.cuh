// Encodes one f32 to one code, for every format whose grid f32 can hold and every rounding: the
// definition of round/encode.h, with everything that does not depend on the value computed on the
// host (EncodePlan). The plan is a kernel argument, so instructions read it from constant memory at
// no cost.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/convert/element_plans.h"
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

// Rounds a finite magnitude to its field, by shifts.
template <Rounding kRounding>
__device__ __forceinline__ std::uint32_t rounded_field(const EncodePlan& plan,
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
    // The exponent is kept, so that the parity of a field is that of its lowest bit.
    const std::uint32_t v =
        binade > exponent || raw == 0u ? significand : magnitude - ((plan.min_field - 1u) << 23);
    const std::uint32_t near = min(shift, 30u);  // further right everything is below a half already
    return (v + round_up_bits<kRounding>(v, near, negative)) >> near;
  }
}

// Rounds a magnitude to its field, by an f32 sum. With E the exponent of its binade, adding 2^(E +
// 23 - mantissa bits) makes f32 itself round to the grid of that binade, in a given direction if
// the rounding has one. The low bits of the sum count the steps from the start of the binade; its
// exponent gives the binade. kRaw: plan.raw_offset, which is even, is not subtracted.
template <Rounding kRounding, bool kRaw = false>
__device__ __forceinline__ std::uint32_t quick_field(const EncodePlan& plan, float magnitude,
                                                     std::uint32_t sign, std::uint32_t random) {
  const std::uint32_t binade = max(__float_as_uint(magnitude) & 0x7F800000u, plan.min_binade);
  const float start = __uint_as_float(binade);
  const auto field_of = [&](float sum) {
    const std::uint32_t bits = __float_as_uint(sum);
    // A shift by multiplication: the multiplier pipe is less busy than the integer one.
    return (bits & plan.step_mask) + __umulhi(bits, plan.down_shift) -
           (kRaw ? 0u : plan.raw_offset);
  };
  if constexpr (kRounding == Rounding::nearest_even) {
    return field_of(__fmaf_rn(start, plan.magic, magnitude));
  } else if constexpr (kRounding == Rounding::toward_zero) {
    return field_of(__fmaf_rz(start, plan.magic, magnitude));
  } else if constexpr (kRounding == Rounding::up || kRounding == Rounding::down) {
    const float a = __uint_as_float(__float_as_uint(magnitude) | sign);
    const float b = __uint_as_float(binade | sign);
    return field_of(fabsf(kRounding == Rounding::up ? __fmaf_ru(b, plan.magic, a)
                                                    : __fmaf_rd(b, plan.magic, a)));
  } else if constexpr (kRounding == Rounding::to_odd) {
    const std::uint32_t below = field_of(__fmaf_rz(start, plan.magic, magnitude));
    const float up = __fmaf_ru(start, plan.magic, magnitude);
    return below | (field_of(up) - below);
  } else if constexpr (kRounding == Rounding::stochastic) {
    // The draw adds up to one step, then truncation. That f32 truncates the intermediate sum does
    // no harm, because it holds every step.
    const float draw = __uint_as_float(random);
    return field_of(
        __fmaf_rz(start, plan.magic, __fmaf_rz(draw, start * plan.draw_scale, magnitude)));
  } else {
    // In half steps, truncated.
    const float sum = __fmaf_rz(start, plan.finer_magic, magnitude);
    const std::uint32_t steps = __float_as_uint(sum) & 0x7FFFFFu;
    return ((steps + 1u) >> 1u) + __umulhi(binade, plan.down_shift) - (kRaw ? 0u : plan.raw_offset);
  }
}

// What differs between formats and policies after rounding; each trait costs a few instructions.
template <EncodeKind kKind>
struct QuickTraits {
  // Special codes for Inf, for NaN of either sign, and limits of either sign.
  static constexpr bool kAny = kKind == EncodeKind::quick || kKind == EncodeKind::integers;
  static constexpr bool kNanKeepsSign = kKind == EncodeKind::simple;
  static constexpr bool kZeroKeepsSign =
      kKind == EncodeKind::simple || kKind == EncodeKind::one_nan;
};

template <Rounding kRounding, EncodeKind kKind>
__device__ __forceinline__ std::uint32_t encode_quick(const EncodePlan& plan, std::uint32_t bits,
                                                      std::uint32_t random) {
  using Traits = QuickTraits<kKind>;
  const float value = __uint_as_float(bits);
  const std::uint32_t top = bits & 0x80000000u;
  const std::uint32_t limit = Traits::kAny && top != 0u ? plan.limit[1] : plan.limit[0];
  const float magnitude = fminf(fabsf(value), __uint_as_float(limit));  // clamps NaN, too
  std::uint32_t field = quick_field<kRounding>(plan, magnitude, top, random);
  std::uint32_t sign = __umulhi(bits, plan.sign_down) & plan.sign_bit;
  if constexpr (Traits::kNanKeepsSign) {
    field = fabsf(value) <= plan.number_most ? field : plan.nan_code[0];
    return field | sign;
  } else if constexpr (!Traits::kAny) {
    if constexpr (!Traits::kZeroKeepsSign) sign = field == 0u ? 0u : sign;
    return fabsf(value) <= plan.number_most ? field | sign : plan.nan_code[0];
  } else {
    std::uint32_t code;
    if constexpr (kKind == EncodeKind::integers) {
      code = (top != 0u ? 0u - field : field) & plan.code_mask;
    } else {
      code = field | (field == 0u ? sign & plan.zero_sign : sign);
    }
    if (fabsf(value) > plan.inf_beyond) code = plan.inf_code[0] ^ (sign & plan.inf_flips);
    if (value != value) code = plan.nan_code[0] ^ (sign & plan.nan_flips);
    return code;
  }
}

// EncodeKind::simple without what is done for several codes at once: without the sign, which NaN
// keeps as well, and with plan.raw_offset not subtracted.
template <Rounding kRounding>
__device__ __forceinline__ std::uint32_t encode_raw(const EncodePlan& plan, std::uint32_t bits,
                                                    std::uint32_t random) {
  const float value = __uint_as_float(bits);
  const float magnitude = fminf(fabsf(value), __uint_as_float(plan.limit[0]));
  const std::uint32_t field =
      quick_field<kRounding, true>(plan, magnitude, bits & 0x80000000u, random);
  return fabsf(value) <= plan.number_most ? field : plan.raw_nan;
}

// Two's complement, to nearest even: the low bits of a sum with a number that is larger than any
// code and a multiple of all of them.
__device__ __forceinline__ std::uint32_t encode_integer(const EncodePlan& plan,
                                                        std::uint32_t bits) {
  const float value = __uint_as_float(bits);
  const float cut =
      fmaxf(fminf(value, __uint_as_float(plan.limit[0])), -__uint_as_float(plan.limit[1]));
  const std::uint32_t code = __float_as_uint(cut + plan.integer_magic) & plan.code_mask;
  return value == value ? code : plan.nan_code[0];
}

// Powers of two from 2^-127, as an exponent field of eight bits without subnormals: 2^-127 is 0.
// kSimple: negative values become the smallest, as zero does.
template <Rounding kRounding, bool kSimple>
__device__ __forceinline__ std::uint32_t encode_e8m0(const EncodePlan& plan, std::uint32_t bits,
                                                     std::uint32_t random) {
  const std::uint32_t magnitude =
      kSimple ? static_cast<std::uint32_t>(max(static_cast<int>(bits), 0)) : bits & 0x7FFFFFFFu;
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
  const float value = __uint_as_float(bits);
  if constexpr (!kSimple) {
    code = magnitude > 0x400000u && magnitude < plan.tiny_below ? 1u : code;
    code = magnitude == 0u ? plan.zero_code : code;
    code = magnitude == 0x7F800000u ? plan.inf_code[0] : code;
    code = bits > plan.negative_beyond ? plan.negative_code : code;
  }
  return value == value ? code : plan.nan_code[0];
}

template <Rounding kRounding, EncodeKind kKind>
__device__ __forceinline__ std::uint32_t encode_element(const EncodePlan& plan, std::uint32_t bits,
                                                        std::uint32_t random) {
  if constexpr (kKind == EncodeKind::simple_integers) {
    if constexpr (kRounding == Rounding::nearest_even) return encode_integer(plan, bits);
    return encode_quick<kRounding, EncodeKind::integers>(plan, bits, random);
  } else if constexpr (kKind == EncodeKind::simple || kKind == EncodeKind::one_nan ||
                       kKind == EncodeKind::one_zero || kKind == EncodeKind::quick ||
                       kKind == EncodeKind::integers) {
    return encode_quick<kRounding, kKind>(plan, bits, random);
  } else if constexpr (kKind == EncodeKind::simple_e8m0) {
    return encode_e8m0<kRounding, true>(plan, bits, random);
  } else if constexpr (kKind == EncodeKind::e8m0) {
    return encode_e8m0<kRounding, false>(plan, bits, random);
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
