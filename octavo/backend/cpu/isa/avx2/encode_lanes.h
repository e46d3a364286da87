// The arithmetic of the x86 encoders over f32 lanes (Avx2Lanes, Avx512Lanes): one algorithm for
// every signed format of up to eight bits with a mantissa.
//
// With p the power of two at or below |x| (not below the smallest normal number) the sum
// p + |x| 2^(M-23), one FMA, has the format's spacing as its last place: the adder rounds, in the
// direction that MXCSR has, for normal and subnormal results alike. Then
//   field = bits(sum) - bits(p) + ((p - p_min) >> (23 - M)).
// Overflow is a clamp of |x| to a grid point beforehand (round/encode_edges.h). Rounding modes are
// those of the NEON encoder (isa/neon/encode_kernel.h).
//
// The rest is done to bytes, a quarter of an operation for a vector of f32:
//   - the constant p_min >> (23 - M) is taken off words, after the first step of packing
//   - NaN stays NaN in the clamp (its second operand) and in the sum, whose bits are then far
//     above those of p: packing with saturation makes 127 of it, which is a NaN's field already,
//     or is replaced
//   - signs are packed beside the fields (saturation keeps them), and merged by one operation
//
// Operations for sixteen f32 to e4m3, nearest_even, of two 512-bit ports (0 and 5; s: 5 alone):
//   before: 10 for the field (two shifts by a register, of two operations each), 5 for the sign,
//     4 for NaN, packing 1s:                                                 20, of them 4s
//   now: and, min, max, and, FMA, sub, shift, add; packing 0.5s + 0.5 + 0.25s, signs 0.75s + 0.5,
//     order 0.25s (bf16: 0.5s):                                              10.8, of them 1.8s
// To come from bf16 is one operation more (before: 2, of them 1s). No branch or address depends on
// data.
#pragma once

#include <bit>

#include "octavo/backend/cpu/isa.h"
#include "octavo/round/encode.h"

namespace octavo::cpu {
namespace {

constexpr std::uint32_t kF32Inf = 0x7F800000u, kF32Magnitude = 0x7FFFFFFFu;
constexpr std::uint32_t kTopByte = 127;  // what packing makes of NaN

// Can f32 lanes encode the format? f32 must have the number above its largest, and half a step must
// be a normal number.
inline bool lanes_fit(const Encoder& encoder) {
  const Format& format = encoder.format;
  const int mantissa = format.mantissa_bits;
  if (format.bits() > 8 || mantissa == 0 || !format.is_signed || encoder.policy.via_f32 ||
      encoder.policy.rounding == Rounding::stochastic || encoder.source == DType::f64)
    return false;
  const int top =
      static_cast<int>((limit_field(format, true) + 1) >> mantissa) - 1 + format.min_exponent();
  return top <= 127 && format.min_exponent() - mantissa - 1 >= -126;
}

// Which special cases after rounding a call has.
enum class SpecialCases {
  none,     // both signs alike, no NaN among the values that matter
  top_nan,  // both signs alike, Inf is just another overflow, NaN has the field 127 and its sign
  nan,      // the same, NaN has another code
  general,  // anything
};

inline SpecialCases special_cases(const Encoder& encoder) {
  const Format& format = encoder.format;
  const std::uint32_t sign = format.sign_mask(), field = encoder.overflow_field[0];
  const bool alike = format.has_negative_zero() && encoder.overflow_field[1] == field &&
                     encoder.inf_code[0] == field && encoder.inf_code[1] == (field | sign) &&
                     field < kTopByte;
  const bool nan_keeps = encoder.nan_code[1] == (encoder.nan_code[0] | sign);
  const bool nan_drops =
      encoder.nan_code[1] == encoder.nan_code[0] && (encoder.nan_code[0] & sign) == 0;
  if (!alike || !(nan_keeps || nan_drops)) return SpecialCases::general;
  if (encoder.only_finite) return SpecialCases::none;
  return nan_keeps && encoder.nan_code[0] == kTopByte ? SpecialCases::top_nan : SpecialCases::nan;
}

template <typename L>
struct EncodeConstants {
  using Bits = typename L::Bits;

  Bits limit[2], smallest, down, down_factor, up_factor, half_step, bias;
  Bits bias_bytes, sign_bytes, sign_down, nan_bytes, nan_sign_bytes;       // of packed fields
  Bits sign_code, zero_sign, negate, code_mask, inf_code[2], nan_code[2];  // of the general case

  explicit EncodeConstants(const Encoder& encoder) {
    const Format& format = encoder.format;
    const int mantissa = format.mantissa_bits, dropped = 23 - mantissa;
    const auto exponents = [](int n) { return L::splat(static_cast<std::uint32_t>(n) << 23); };
    for (std::size_t s = 0; s < 2; ++s) {
      limit[s] = L::splat(std::bit_cast<std::uint32_t>(
          static_cast<float>(grid_value(format, encoder.overflow_field[s]))));
      inf_code[s] = L::splat(encoder.inf_code[s]);
      nan_code[s] = L::splat(encoder.nan_code[s]);
    }
    const auto first = static_cast<std::uint32_t>(format.min_exponent() + 127);
    smallest = L::splat(first << 23);
    down = L::splat(static_cast<std::uint32_t>(dropped));
    down_factor = exponents(127 - dropped);
    up_factor = exponents(127 + dropped);
    half_step = exponents(mantissa + 1);
    bias = L::splat(first << mantissa);
    bias_bytes = L::splat_halves(first << mantissa);
    sign_bytes = L::splat_bytes(format.sign_mask());
    sign_down = L::splat(static_cast<std::uint32_t>(8 - format.bits()));
    nan_bytes = L::splat_bytes(encoder.nan_code[0] & format.magnitude_mask());
    nan_sign_bytes =
        L::splat_bytes(encoder.nan_code[0] == encoder.nan_code[1] ? 0 : format.sign_mask());
    sign_code = L::splat(format.twos_complement ? 0 : format.sign_mask());
    zero_sign = L::splat(format.has_negative_zero() ? format.sign_mask() : 0);
    negate = L::splat(format.twos_complement ? 0xFFFFFFFFu : 0);
    code_mask = L::splat(format.code_mask() & 0xFF);
  }
};

// The field of a clamped magnitude, `bias` above it; far above it for NaN. `sign` is that of the
// value, or 0 where the mode treats both alike.
template <typename L, Rounding kRounding>
[[gnu::always_inline]] inline typename L::Bits biased_field(const EncodeConstants<L>& k,
                                                            typename L::Bits lane,
                                                            typename L::Bits sign) {
  using Bits = typename L::Bits;
  const Bits power = L::band(L::fmax(lane, k.smallest), L::splat(kF32Inf));
  Bits addend = power;
  if constexpr (kRounding == Rounding::nearest_away)
    lane = L::fadd(lane, L::sub(power, k.half_step));
  if constexpr (kRounding == Rounding::up || kRounding == Rounding::down) {
    lane = L::bor(lane, sign);
    addend = L::bor(power, sign);
  }
  Bits sum = L::fmla(lane, k.down_factor, addend);
  if constexpr (kRounding == Rounding::to_odd) {
    // Upwards again, because downwards a product may vanish.
    const Bits rounded = L::fmul(L::fsub(sum, addend), k.up_factor);
    sum = L::select(L::fequal(rounded, lane), sum, L::bor(sum, L::splat(1)));
  }
  return L::add(L::sub(sum, addend), L::shift_each_right(power, k.down));
}

// Codes of four vectors of f32 bits, as packed bytes; four vectors of anything for kCases none,
// where they are not finite.
template <typename L, Rounding kRounding, SpecialCases kCases>
[[gnu::always_inline]] inline typename L::Bits encode_group(const EncodeConstants<L>& k,
                                                            const typename L::Bits raw[4]) {
  using Bits = typename L::Bits;
  static_assert(kCases != SpecialCases::general);
  Bits fields[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Bits magnitude = L::band(raw[i], L::splat(kF32Magnitude));
    fields[i] =
        biased_field<L, kRounding>(k, L::fmin(k.limit[0], magnitude), L::bxor(raw[i], magnitude));
  }
  const Bits field = L::pack(fields, k.bias_bytes);
  // A sign leaves its byte for none of the bits that count.
  const Bits signs = L::shift_each_right(L::pack_signs(raw), k.sign_down);
  if constexpr (kCases != SpecialCases::nan) return L::merge(k.sign_bytes, signs, field);
  return L::merge(L::where_top(field, k.nan_sign_bytes, k.sign_bytes), signs,
                  L::where_top(field, k.nan_bytes, field));
}

// The code of each lane, in its low byte, for any format and policy.
template <typename L, Rounding kRounding>
[[gnu::always_inline]] inline typename L::Bits encode_any(const EncodeConstants<L>& k,
                                                          typename L::Bits raw) {
  using Bits = typename L::Bits;
  const Bits magnitude = L::band(raw, L::splat(kF32Magnitude));
  const auto negative = L::negative(raw);
  const Bits lane = L::fmin(L::select(negative, k.limit[1], k.limit[0]), magnitude);
  const Bits field = L::sub(biased_field<L, kRounding>(k, lane, L::bxor(raw, magnitude)), k.bias);
  const Bits sign =
      L::keep(negative, L::select(L::equal(field, L::splat(0)), k.zero_sign, k.sign_code));
  const Bits flip = L::keep(negative, k.negate);
  Bits code = L::band(L::sub(L::bxor(L::bor(field, sign), flip), flip), k.code_mask);
  code = L::select(L::equal(magnitude, L::splat(kF32Inf)),
                   L::select(negative, k.inf_code[1], k.inf_code[0]), code);
  return L::select(L::above(magnitude, L::splat(kF32Inf)),
                   L::select(negative, k.nan_code[1], k.nan_code[0]), code);
}

template <typename L, Rounding kRounding>
[[gnu::always_inline]] inline typename L::Bits encode_any_group(const EncodeConstants<L>& k,
                                                                const typename L::Bits raw[4]) {
  typename L::Bits codes[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) codes[i] = encode_any<L, kRounding>(k, raw[i]);
  return L::pack_codes(codes);
}

}  // namespace
}  // namespace octavo::cpu
