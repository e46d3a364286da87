// The portable span kernels: one integer algorithm for every format, rounding and policy, without a
// branch or a table that depends on data, written so that a compiler can vectorise it. It is the
// algorithm of round/encode.h on lanes as wide as the source, with all decisions made by selects.
#pragma once

#include <bit>
#include <cstdint>

#include "octavo/backend/cpu/span.h"
#include "octavo/format/decode.h"
#include "octavo/round/stochastic.h"

namespace octavo::cpu::portable {

template <typename Wide>
struct LaneTraits;
template <>
struct LaneTraits<float> {
  using Lane = std::uint32_t;
  static constexpr int kMantissa = 23, kBias = 127, kTop = 31;
};
template <>
struct LaneTraits<double> {
  using Lane = std::uint64_t;
  static constexpr int kMantissa = 52, kBias = 1023, kTop = 63;
};

// The constants of one call in the width of a lane.
template <typename Wide>
struct LanePlan {
  using Traits = LaneTraits<Wide>;
  using Lane = typename Traits::Lane;

  Lane mantissa_bits, min_field;  // min_field: exponent field, in the source, of the smallest normal
  Lane no_zero;                   // 1 where the format has no zero: fields start one binade up
  Lane limit[2], inf_code[2], nan_code[2];
  Lane sign_code;       // the sign bit of a code, 0 for unsigned and two's complement
  Lane bare_zero_sign;  // the sign bit where minus zero exists, else 0
  Lane negate;          // all ones for two's complement
  Lane code_mask;
  bool is_signed;
  Lane negative_is_special, negative_code;  // unsigned formats: what any value below zero becomes
  Lane zero_is_special, zero_code;          // formats without zero
  Lane tiny_low, tiny_high;                 // between these two lies what EncodePolicy::tiny_rounds_up moves
  Lane stochastic_bits;

  explicit LanePlan(const Encoder& encoder) {
    const Format& format = encoder.format;
    const EncodePolicy& policy = encoder.policy;
    mantissa_bits = format.mantissa_bits;
    min_field = static_cast<Lane>(format.min_exponent() + Traits::kBias);
    no_zero = format.has_zero ? 0 : 1;
    for (int negative = 0; negative < 2; ++negative) {
      limit[negative] =
          std::bit_cast<Lane>(static_cast<Wide>(grid_value(format, encoder.overflow_field[static_cast<std::size_t>(negative)])));
      inf_code[negative] = encoder.inf_code[static_cast<std::size_t>(negative)];
      nan_code[negative] = encoder.nan_code[static_cast<std::size_t>(negative)];
    }
    sign_code = format.twos_complement ? 0 : format.sign_mask();
    bare_zero_sign = format.has_negative_zero() ? sign_code : 0;
    negate = format.twos_complement ? ~Lane{0} : 0;
    code_mask = format.code_mask();
    is_signed = format.is_signed;
    const bool keeps_magnitude = policy.negative_input == NegativeInput::magnitude;
    negative_is_special = !format.is_signed && !keeps_magnitude ? 1 : 0;
    negative_code = policy.negative_input == NegativeInput::nan && format.has_nan() ? format.magnitude_mask() : 0;
    zero_is_special = format.has_zero ? 0 : 1;
    zero_code = policy.zero_input == ZeroInput::nan && format.has_nan() ? format.magnitude_mask() : 0;
    const bool moves_tiny = policy.tiny_rounds_up && !format.has_zero;
    tiny_low = std::bit_cast<Lane>(static_cast<Wide>(grid_value(format, 0)));
    tiny_high = moves_tiny ? std::bit_cast<Lane>(static_cast<Wide>(grid_value(format, 1))) : 0;
    stochastic_bits = static_cast<Lane>(policy.stochastic_bits);
  }
};

template <typename Lane>
constexpr Lane select(bool condition, Lane yes, Lane no) {
  return condition ? yes : no;
}

// The field of a finite magnitude (bits of the source type), rounded, not limited.
template <typename Wide, Rounding kRounding>
inline typename LaneTraits<Wide>::Lane round_field(const LanePlan<Wide>& plan, typename LaneTraits<Wide>::Lane magnitude,
                                                   bool negative, typename LaneTraits<Wide>::Lane random) {
  using Traits = LaneTraits<Wide>;
  using Lane = typename Traits::Lane;
  constexpr Lane kOne = 1;
  const Lane exponent_field = magnitude >> Traits::kMantissa;
  const Lane significand =
      (magnitude & ((kOne << Traits::kMantissa) - 1)) | (select<Lane>(exponent_field != 0, kOne, 0) << Traits::kMantissa);
  const Lane exponent = exponent_field > 1 ? exponent_field : kOne;
  const Lane binade = exponent > plan.min_field ? exponent : plan.min_field;
  const Lane full_shift = static_cast<Lane>(Traits::kMantissa) - plan.mantissa_bits + (binade - exponent);
  // A shift by the lane's top bit already leaves quotient 0 and a remainder below a half.
  const Lane shift = full_shift < Traits::kTop ? full_shift : static_cast<Lane>(Traits::kTop);
  const Lane base = (binade - plan.min_field - plan.no_zero) << plan.mantissa_bits;
  if constexpr (kRounding == Rounding::stochastic) {
    // shift - n may be negative for f32: then the discarded fraction has fewer than n bits.
    const Lane n = plan.stochastic_bits;
    const Lane drop = full_shift > n ? full_shift - n : 0;
    const Lane near_drop = drop < Traits::kTop ? drop : static_cast<Lane>(Traits::kTop);
    const Lane grow = full_shift < n ? n - full_shift : 0;
    return ((((significand >> near_drop) << grow) + random) >> n) + base;
  } else {
    const Lane quotient = significand >> shift;
    const Lane step = kOne << shift;
    const Lane rest = significand & (step - 1);
    const Lane odd = (quotient + base) & 1;
    const Lane inexact = select<Lane>(rest != 0, 1, 0);
    Lane carry = 0;
    if constexpr (kRounding == Rounding::nearest_even) carry = select<Lane>(rest + odd > (step >> 1), 1, 0);
    if constexpr (kRounding == Rounding::nearest_away) carry = select<Lane>(rest >= (step >> 1), 1, 0);
    if constexpr (kRounding == Rounding::up) carry = select<Lane>(negative, 0, inexact);
    if constexpr (kRounding == Rounding::down) carry = select<Lane>(negative, inexact, 0);
    if constexpr (kRounding == Rounding::to_odd) carry = inexact & ~odd;
    return quotient + base + carry;
  }
}

template <typename Wide, Rounding kRounding>
inline typename LaneTraits<Wide>::Lane encode_lane(const LanePlan<Wide>& plan, Wide value,
                                                   typename LaneTraits<Wide>::Lane random) {
  using Traits = LaneTraits<Wide>;
  using Lane = typename Traits::Lane;
  constexpr Lane kMagnitude = ~Lane{0} >> 1;
  constexpr Lane kInf = ((Lane{1} << (Traits::kTop - Traits::kMantissa)) - 1) << Traits::kMantissa;
  const Lane bits = std::bit_cast<Lane>(value);
  const Lane magnitude = bits & kMagnitude;
  const bool below_zero = (bits >> Traits::kTop) != 0;
  const bool negative = below_zero && plan.is_signed;

  const Lane limit = select(negative, plan.limit[1], plan.limit[0]);
  const Lane finite = magnitude < limit ? magnitude : limit;
  Lane field = round_field<Wide, kRounding>(plan, finite, negative, random);
  // Without zero a value below the smallest wraps around to a huge field.
  field = select(plan.no_zero != 0 && field > plan.code_mask, Lane{0}, field);
  field = select(magnitude > plan.tiny_low && magnitude < plan.tiny_high, Lane{1}, field);
  const Lane sign = select(negative, select(field == 0, plan.bare_zero_sign, plan.sign_code), Lane{0});
  const Lane flip = select(negative, plan.negate, Lane{0});
  Lane code = (((field | sign) ^ flip) - flip) & plan.code_mask;
  code = select(magnitude == kInf, select(negative, plan.inf_code[1], plan.inf_code[0]), code);
  code = select(plan.zero_is_special != 0 && magnitude == 0, plan.zero_code, code);
  code = select(plan.negative_is_special != 0 && below_zero && magnitude != 0, plan.negative_code, code);
  return select(magnitude > kInf, select(negative, plan.nan_code[1], plan.nan_code[0]), code);
}

template <typename Wide, typename Code, Rounding kRounding>
void encode_lanes(const Encoder& encoder, const Wide* __restrict values, Code* __restrict codes, std::int64_t n,
                  std::uint64_t index) {
  using Lane = typename LaneTraits<Wide>::Lane;
  const LanePlan<Wide> plan(encoder);
  for (std::int64_t i = 0; i < n; ++i) {
    Lane random = 0;
    if constexpr (kRounding == Rounding::stochastic) {
      random = stochastic_draw(encoder.policy.seed, index + static_cast<std::uint64_t>(i), encoder.policy.stochastic_bits);
    }
    codes[i] = static_cast<Code>(encode_lane<Wide, kRounding>(plan, values[i], random));
  }
}

// Codes to f32 or f64, exactly. Subnormals go through an exact integer-to-float conversion and one
// exact product; the driver has set a plain floating-point environment.
template <typename Wide, typename Code>
void decode_lanes(const Format& format, const Code* __restrict codes, Wide* __restrict values, std::int64_t n) {
  using Traits = LaneTraits<Wide>;
  using Lane = typename Traits::Lane;
  constexpr Lane kInf = ((Lane{1} << (Traits::kTop - Traits::kMantissa)) - 1) << Traits::kMantissa;
  constexpr Lane kQuietNan = kInf | (Lane{1} << (Traits::kMantissa - 1));
  const Lane code_mask = format.code_mask(), magnitude_mask = format.magnitude_mask(), sign_mask = format.sign_mask();
  const int up_shift = Traits::kMantissa - format.mantissa_bits;
  const Lane rebias = static_cast<Lane>(Traits::kBias - format.bias) << Traits::kMantissa;
  const Lane first_normal = format.has_zero ? Lane{1} << format.mantissa_bits : 0;
  const Wide step = static_cast<Wide>(power_of_two(format.min_step_exponent()));
  // Fields from here on are Inf (the first, where there is one) or NaN; NaN in place of -0 is a code.
  const Lane special = format.nan == Nan::ieee || format.nan == Nan::all_ones ? format.max_field() + 1 : ~Lane{0};
  const Lane inf_field = format.has_inf ? special : ~Lane{0};
  const Lane nan_code = format.nan == Nan::negative_zero ? sign_mask : ~Lane{0};
  const bool integer = format.twos_complement;
  const Lane bias_of_zeroless = !format.has_zero && format.min_exponent() + Traits::kBias < 1 ? 1 : 0;
  const Lane tiny = std::bit_cast<Lane>(step);

  for (std::int64_t i = 0; i < n; ++i) {
    const Lane code = static_cast<Lane>(codes[i]) & code_mask;
    const bool negative = (code & sign_mask) != 0;
    Lane field = code & magnitude_mask;
    field = select(integer && negative, (Lane{0} - code) & code_mask, field);
    const Lane small = std::bit_cast<Lane>(static_cast<Wide>(static_cast<std::int32_t>(field)) * step);
    Lane magnitude = select(field < first_normal || integer, small, static_cast<Lane>((field << up_shift) + rebias));
    // 2^-127, the first code of e8m0fnu, is subnormal in f32.
    magnitude = select(bias_of_zeroless != 0 && field == 0, tiny, magnitude);
    magnitude = select(field == inf_field, kInf, magnitude);
    magnitude = select(field >= special && field != inf_field, kQuietNan, magnitude);
    const Lane sign = select(negative, Lane{1} << Traits::kTop, Lane{0});
    values[i] = std::bit_cast<Wide>(select(code == nan_code, kQuietNan, magnitude | sign));
  }
}

}  // namespace octavo::cpu::portable
