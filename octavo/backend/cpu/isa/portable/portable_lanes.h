// The portable span kernels: one integer algorithm for every format, rounding and policy, without a
// branch or a table that depends on data, written so that a compiler can vectorise it. It is the
// algorithm of round/encode.h on lanes as wide as the source, with all decisions made by selects.
//
// Everything here, and in the *_spans.h, has internal linkage on purpose: each instruction set
// compiles it for itself.
#pragma once

#include <bit>
#include <cstdint>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/isa/portable/stochastic_lanes.h"
#include "octavo/format/decode.h"

namespace octavo::cpu::portable {
namespace {

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

// All ones where the condition holds. Decisions are masks, not `?:`, because a compiler is free to
// turn a conditional expression into a branch, and then neither vectorises the loop nor keeps it
// oblivious.
template <typename Lane>
constexpr Lane mask_of(bool condition) {
  return Lane{0} - static_cast<Lane>(condition);
}

template <typename Lane>
constexpr Lane select(Lane mask, Lane yes, Lane no) {
  return no ^ ((yes ^ no) & mask);
}

template <typename Lane>
constexpr Lane smaller(Lane a, Lane b) {
  return a < b ? a : b;
}
template <typename Lane>
constexpr Lane larger(Lane a, Lane b) {
  return a > b ? a : b;
}

// The constants of one call in the width of a lane; pairs are indexed by the sign.
template <typename Wide>
struct LanePlan {
  using Traits = LaneTraits<Wide>;
  using Lane = typename Traits::Lane;

  Lane mantissa_bits,
      min_field;  // min_field: exponent field, in the source, of the smallest normal
  Lane no_zero;   // 1 where the format has no zero: fields start one binade up
  Lane limit[2], inf_code[2], nan_code[2];
  Lane signed_mask;  // all ones where the format has a sign
  Lane sign_code;    // the sign bit of a code, 0 for unsigned and two's complement
  Lane zero_sign;    // the sign bit where minus zero exists, else 0
  Lane negate;       // all ones for two's complement
  Lane code_mask;
  Lane negative_special, negative_code;  // unsigned formats: what any value below zero becomes
  Lane zero_special, zero_code;          // formats without zero
  Lane tiny_low, tiny_high;  // between these two lies what EncodePolicy::tiny_rounds_up moves
  Lane stochastic_bits;

  explicit LanePlan(const Encoder& encoder) {
    const Format& format = encoder.format;
    const EncodePolicy& policy = encoder.policy;
    const auto grid = [&](std::uint32_t field) {
      return std::bit_cast<Lane>(static_cast<Wide>(grid_value(format, field)));
    };
    mantissa_bits = format.mantissa_bits;
    min_field = static_cast<Lane>(format.min_exponent() + Traits::kBias);
    no_zero = format.has_zero ? 0 : 1;
    for (std::size_t negative = 0; negative < 2; ++negative) {
      limit[negative] = grid(encoder.overflow_field[negative]);
      inf_code[negative] = encoder.inf_code[negative];
      nan_code[negative] = encoder.nan_code[negative];
    }
    signed_mask = mask_of<Lane>(format.is_signed);
    sign_code = format.twos_complement ? 0 : format.sign_mask();
    zero_sign = format.has_negative_zero() ? sign_code : 0;
    negate = mask_of<Lane>(format.twos_complement);
    code_mask = format.code_mask();
    const Lane nan = format.has_nan() ? format.magnitude_mask() : 0;
    negative_special =
        mask_of<Lane>(!format.is_signed && policy.negative_input != NegativeInput::magnitude);
    negative_code = policy.negative_input == NegativeInput::nan ? nan : 0;
    zero_special = mask_of<Lane>(!format.has_zero);
    zero_code = policy.zero_input == ZeroInput::nan ? nan : 0;
    tiny_low = grid(0);
    tiny_high = policy.tiny_rounds_up && !format.has_zero ? grid(1) : 0;
    stochastic_bits = static_cast<Lane>(policy.stochastic_bits);
  }
};

// The field of a finite magnitude (bits of the source type), rounded, not limited. `negative` is a
// mask.
template <typename Wide, Rounding kRounding>
inline typename LaneTraits<Wide>::Lane round_field(const LanePlan<Wide>& plan,
                                                   typename LaneTraits<Wide>::Lane magnitude,
                                                   typename LaneTraits<Wide>::Lane negative,
                                                   typename LaneTraits<Wide>::Lane random) {
  using Traits = LaneTraits<Wide>;
  using Lane = typename Traits::Lane;
  constexpr Lane kOne = 1, kTop = Traits::kTop;
  const Lane exponent_field = magnitude >> Traits::kMantissa;
  const Lane exponent = larger(exponent_field, kOne);
  // The implicit bit is missing exactly where the exponent had to be raised to 1.
  const Lane implicit = (exponent_field - exponent + 1) << Traits::kMantissa;
  const Lane significand = (magnitude & ((kOne << Traits::kMantissa) - 1)) | implicit;
  const Lane binade = larger(exponent, plan.min_field);
  const Lane full_shift =
      static_cast<Lane>(Traits::kMantissa) - plan.mantissa_bits + (binade - exponent);
  const Lane base = (binade - plan.min_field - plan.no_zero) << plan.mantissa_bits;
  if constexpr (kRounding == Rounding::stochastic) {
    // full_shift - n may be negative for f32: then the discarded fraction has fewer than n bits.
    const Lane n = plan.stochastic_bits, least = smaller(full_shift, n);
    const Lane drop = smaller(static_cast<Lane>(full_shift - least), kTop);
    return ((((significand >> drop) << (n - least)) + random) >> n) + base;
  } else {
    // A shift by the lane's top bit already leaves quotient 0 and a remainder below a half.
    const Lane shift = smaller(full_shift, kTop);
    const Lane quotient = significand >> shift;
    const Lane step = kOne << shift, half = step >> 1;
    const Lane rest = significand & (step - 1);
    const Lane odd = (quotient + base) & 1;
    const Lane inexact = mask_of<Lane>(rest != 0) & 1;
    Lane carry = 0;
    if constexpr (kRounding == Rounding::nearest_even) carry = mask_of<Lane>(rest + odd > half) & 1;
    if constexpr (kRounding == Rounding::nearest_away) carry = mask_of<Lane>(rest >= half) & 1;
    if constexpr (kRounding == Rounding::up) carry = inexact & ~negative;
    if constexpr (kRounding == Rounding::down) carry = inexact & negative;
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
  const Lane below_zero = mask_of<Lane>(bits > kMagnitude),
             negative = below_zero & plan.signed_mask;

  const Lane finite = smaller(magnitude, select(negative, plan.limit[1], plan.limit[0]));
  Lane field = round_field<Wide, kRounding>(plan, finite, negative, random);
  // Without zero a value below the smallest wraps around to a huge field.
  field &= ~(mask_of<Lane>(field > plan.code_mask) & plan.zero_special);
  field =
      select(mask_of<Lane>(magnitude > plan.tiny_low) & mask_of<Lane>(magnitude < plan.tiny_high),
             Lane{1}, field);
  const Lane sign = negative & select(mask_of<Lane>(field == 0), plan.zero_sign, plan.sign_code);
  const Lane flip = negative & plan.negate;
  Lane code = (((field | sign) ^ flip) - flip) & plan.code_mask;
  code = select(mask_of<Lane>(magnitude == kInf),
                select(negative, plan.inf_code[1], plan.inf_code[0]), code);
  const Lane is_zero = mask_of<Lane>(magnitude == 0);
  code = select(is_zero & plan.zero_special, plan.zero_code, code);
  code = select(below_zero & ~is_zero & plan.negative_special, plan.negative_code, code);
  return select(mask_of<Lane>(magnitude > kInf),
                select(negative, plan.nan_code[1], plan.nan_code[0]), code);
}

template <typename Wide, typename Code, Rounding kRounding>
void encode_lanes(const Encoder& encoder, const Wide* __restrict values, Code* __restrict codes,
                  std::int64_t n, std::uint64_t index) {
  using Lane = typename LaneTraits<Wide>::Lane;
  const LanePlan<Wide> plan(encoder);
  if constexpr (kRounding == Rounding::stochastic) {
    for (std::int64_t start = 0; start < n; start += kDraws) {
      Lane draws[kDraws];
      const std::int64_t count = smaller(kDraws, n - start);
      draw_lanes(encoder.policy.seed, index + static_cast<std::uint64_t>(start),
                 encoder.policy.stochastic_bits, count, draws);
      for (std::int64_t i = 0; i < count; ++i) {
        codes[start + i] =
            static_cast<Code>(encode_lane<Wide, kRounding>(plan, values[start + i], draws[i]));
      }
    }
  } else {
    (void)index;
    for (std::int64_t i = 0; i < n; ++i)
      codes[i] = static_cast<Code>(encode_lane<Wide, kRounding>(plan, values[i], Lane{0}));
  }
}

// Codes to f32 or f64, exactly. Subnormals go through an exact integer-to-float conversion and one
// exact product; the driver has set a plain floating-point environment.
template <typename Wide, typename Code>
void decode_lanes(const Format& format, const Code* __restrict codes, Wide* __restrict values,
                  std::int64_t n) {
  using Traits = LaneTraits<Wide>;
  using Lane = typename Traits::Lane;
  constexpr Lane kInf = ((Lane{1} << (Traits::kTop - Traits::kMantissa)) - 1) << Traits::kMantissa;
  constexpr Lane kQuietNan = kInf | (Lane{1} << (Traits::kMantissa - 1));
  const Lane code_mask = format.code_mask(), magnitude_mask = format.magnitude_mask(),
             sign_mask = format.sign_mask();
  const int up_shift = Traits::kMantissa - format.mantissa_bits;
  const Lane rebias = static_cast<Lane>(Traits::kBias - format.bias) << Traits::kMantissa;
  const Lane first_normal = format.has_zero ? Lane{1} << format.mantissa_bits : 0;
  const Wide step = static_cast<Wide>(power_of_two(format.min_step_exponent()));
  // Fields from here on are Inf (the first, where there is one) or NaN; NaN in place of -0 is a
  // code.
  const Lane special =
      format.nan == Nan::ieee || format.nan == Nan::all_ones ? format.max_field() + 1 : ~Lane{0};
  const Lane inf_field = format.has_inf ? special : ~Lane{0};
  const Lane nan_code = format.nan == Nan::negative_zero ? sign_mask : ~Lane{0};
  const Lane integer = mask_of<Lane>(format.twos_complement);
  // 2^-127, the first code of e8m0fnu, is subnormal in f32.
  const Lane tiny_zero =
      mask_of<Lane>(!format.has_zero && format.min_exponent() + Traits::kBias < 1);
  const Lane tiny = std::bit_cast<Lane>(step);

  for (std::int64_t i = 0; i < n; ++i) {
    const Lane code = static_cast<Lane>(codes[i]) & code_mask;
    const Lane negative = mask_of<Lane>((code & sign_mask) != 0);
    const Lane field =
        select(integer & negative, (Lane{0} - code) & code_mask, code & magnitude_mask);
    const Lane small =
        std::bit_cast<Lane>(static_cast<Wide>(static_cast<std::int32_t>(field)) * step);
    Lane magnitude = select(mask_of<Lane>(field < first_normal) | integer, small,
                            static_cast<Lane>((field << up_shift) + rebias));
    magnitude = select(tiny_zero & mask_of<Lane>(field == 0), tiny, magnitude);
    magnitude = select(mask_of<Lane>(field >= special), kQuietNan, magnitude);
    magnitude = select(mask_of<Lane>(field == inf_field), kInf, magnitude);
    const Lane sign = negative & (Lane{1} << Traits::kTop);
    values[i] =
        std::bit_cast<Wide>(select(mask_of<Lane>(code == nan_code), kQuietNan, magnitude | sign));
  }
}

}  // namespace
}  // namespace octavo::cpu::portable
