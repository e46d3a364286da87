// bf16 to e5m2, whose range is too wide for the half-precision lanes of the general kernel.
//
// Two candidates are computed and the larger is taken: the exponent moved and five bits dropped,
// which is right from 2^-14 on and too small below; and the subnormal grid of 2^-16, by an f16
// addition on min(|x|, 2^-14) * 2^14, which is right below 2^-14 and at most 4, the first normal
// field, above. 27 operations for sixteen elements; widening them for the conversion of wider
// sources (encode_e5m2_neon.cc) takes fewer operations, but on the one pipe that converts, and is
// slower.
#include <arm_neon.h>

#include "octavo/backend/cpu/isa/neon/lanes.h"
#include "octavo/backend/cpu/isa/neon/run16.h"
#include "octavo/backend/cpu/isa/neon/special_codes.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

constexpr bool is_signed_mode(Rounding rounding) {
  return rounding == Rounding::up || rounding == Rounding::down;
}
constexpr FpRounding adder_mode_of(Rounding rounding) {
  if (rounding == Rounding::nearest_even) return FpRounding::nearest;
  return rounding == Rounding::up     ? FpRounding::up
         : rounding == Rounding::down ? FpRounding::down
                                      : FpRounding::zero;
}

constexpr int kDrop = 5;
constexpr std::uint16_t kZero = (127 - 15) << 7;  // what stands for the field 0, kDrop bits up

// Prepares a field for dropping the last kDrop bits; `away` is a mask: where inexact means up.
template <Rounding kRounding>
[[gnu::always_inline]] inline uint16x8_t before_drop(uint16x8_t magnitude, uint16x8_t away) {
  constexpr std::uint16_t kRest = (1u << kDrop) - 1;
  if constexpr (kRounding == Rounding::nearest_even) {
    // Half-up of one less, plus the field's last bit: a tie whose last bit is even stays below one
    // half.
    const uint16x8_t less = vqsubq_u16(magnitude, vdupq_n_u16(kZero + 1));
    return vsraq_n_u16(less, vshlq_n_u16(less, 15 - kDrop), 15);
  }
  const uint16x8_t wide = vqsubq_u16(magnitude, vdupq_n_u16(kZero));
  if constexpr (is_signed_mode(kRounding))
    return vaddq_u16(wide, vandq_u16(away, vdupq_n_u16(kRest)));
  if constexpr (kRounding == Rounding::to_odd) {
    const uint16x8_t inexact = vtstq_u16(wide, vdupq_n_u16(kRest));
    return vorrq_u16(wide, vandq_u16(inexact, vdupq_n_u16(kRest + 1)));
  }
  return wide;
}

// Saturates at 255, so that a limit can be applied to the bytes.
template <Rounding kRounding>
[[gnu::always_inline]] inline uint8x16_t drop_bits(const uint16x8_t wide[2]) {
  if constexpr (kRounding == Rounding::nearest_even || kRounding == Rounding::nearest_away) {
    return vqrshrn_high_n_u16(vqrshrn_n_u16(wide[0], kDrop), wide[1], kDrop);
  }
  return vqshrn_high_n_u16(vqshrn_n_u16(wide[0], kDrop), wide[1], kDrop);
}

[[gnu::always_inline]] inline uint16x8_t half_add(uint16x8_t a, uint16x8_t b) {
  return vreinterpretq_u16_f16(vaddq_f16(vreinterpretq_f16_u16(a), vreinterpretq_f16_u16(b)));
}

// The subnormal field of eight bf16 magnitudes, in the low byte.
template <Rounding kRounding>
[[gnu::always_inline]] inline uint16x8_t subnormal_field(uint16x8_t magnitude, uint16x8_t sign) {
  constexpr std::uint16_t kRebias = (127 - 15 - 14) << 7, kOne = 0x3C00;
  uint16x8_t big = vdupq_n_u16(0x5C00);  // 256: its last place is 1/4
  uint16x8_t lane =
      vminq_u16(vshlq_n_u16(vqsubq_u16(magnitude, vdupq_n_u16(kRebias)), 3), vdupq_n_u16(kOne));
  if constexpr (kRounding == Rounding::nearest_away)
    lane = half_add(lane, vdupq_n_u16(0x3000));  // 1/8
  if constexpr (is_signed_mode(kRounding) || kRounding == Rounding::to_odd) {
    // Keeps values that the exponent move flushed from being zero.
    lane = vmaxq_u16(lane, vminq_u16(magnitude, vdupq_n_u16(1)));
  }
  if constexpr (is_signed_mode(kRounding)) {
    lane = vorrq_u16(lane, sign);
    big = vorrq_u16(big, sign);
  }
  const uint16x8_t sum = half_add(lane, big);
  if constexpr (kRounding == Rounding::to_odd) {
    const float16x8_t back = vsubq_f16(vreinterpretq_f16_u16(sum), vreinterpretq_f16_u16(big));
    const uint16x8_t exact = vceqq_f16(back, vreinterpretq_f16_u16(lane));
    return vorrq_u16(sum, vbicq_u16(vdupq_n_u16(1), exact));
  }
  return sum;
}

[[gnu::always_inline]] inline uint8x16_t low_bytes(const uint16x8_t v[2]) {
  return vuzp1q_u8(vreinterpretq_u8_u16(v[0]), vreinterpretq_u8_u16(v[1]));
}

// `kAlike`: both signs have one limit, Inf is just another overflow, and NaN keeps its sign.
template <Rounding kRounding, bool kAlike>
[[gnu::always_inline]] inline uint8x16_t convert16(const SpecialCodes& k, const std::byte* from) {
  const uint16x8_t inf_bits = vdupq_n_u16(0x7F80);
  uint16x8_t raw[2], wide[2], small[2], is_inf[2], is_nan[2];
  load_bfloat<DType::bf16>(from, raw);
  for (int v = 0; v < 2; ++v) {
    const uint16x8_t magnitude = vandq_u16(raw[v], vdupq_n_u16(0x7FFF)),
                     sign = vbicq_u16(raw[v], vdupq_n_u16(0x7FFF));
    const uint16x8_t negative =
        vreinterpretq_u16_s16(vshrq_n_s16(vreinterpretq_s16_u16(raw[v]), 15));
    is_nan[v] = vcgtq_u16(magnitude, inf_bits);
    if constexpr (!kAlike) is_inf[v] = vceqq_u16(magnitude, inf_bits);
    wide[v] = before_drop<kRounding>(magnitude,
                                     kRounding == Rounding::up ? vmvnq_u16(negative) : negative);
    small[v] = subnormal_field<kRounding>(magnitude, sign);
  }
  const uint8x16_t tops = vuzp2q_u8(vreinterpretq_u8_u16(raw[0]), vreinterpretq_u8_u16(raw[1]));
  const uint8x16_t sign_bit = vdupq_n_u8(0x80), nan = low_bytes(is_nan);
  const uint8x16_t negative = vcltzq_s8(vreinterpretq_s8_u8(tops));
  uint8x16_t code = vminq_u8(drop_bits<kRounding>(wide),
                             kAlike ? k.limit[0] : vbslq_u8(negative, k.limit[1], k.limit[0]));
  code = vmaxq_u8(code, low_bytes(small));
  if constexpr (kAlike) return vbslq_u8(sign_bit, tops, vbslq_u8(nan, k.nan[0], code));
  code = vbslq_u8(sign_bit, tops, code);
  code = vbslq_u8(low_bytes(is_inf), vbslq_u8(negative, k.inf[1], k.inf[0]), code);
  return vbslq_u8(nan, vbslq_u8(negative, k.nan[1], k.nan[0]), code);
}

template <Rounding kRounding, bool kAlike>
void encode_e5m2(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                 std::uint64_t) {
  const FpEnvGuard guard(adder_mode_of(kRounding));
  const SpecialCodes k(encoder);
  run16<DType::bf16>(values, codes, n,
                     [&](const std::byte* from) { return convert16<kRounding, kAlike>(k, from); });
}

template <bool kAlike>
EncodeSpan choose_rounding(Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest_even:
      return encode_e5m2<Rounding::nearest_even, kAlike>;
    case Rounding::nearest_away:
      return encode_e5m2<Rounding::nearest_away, kAlike>;
    case Rounding::toward_zero:
      return encode_e5m2<Rounding::toward_zero, kAlike>;
    case Rounding::up:
      return encode_e5m2<Rounding::up, kAlike>;
    case Rounding::down:
      return encode_e5m2<Rounding::down, kAlike>;
    case Rounding::to_odd:
      return encode_e5m2<Rounding::to_odd, kAlike>;
    case Rounding::stochastic:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

EncodeSpan neon_fp16_encode_e5m2(const Encoder& encoder) {
  if (encoder.format != e5m2 || encoder.source != DType::bf16) return nullptr;
  const std::uint32_t field = encoder.overflow_field[0], sign = e5m2.sign_mask();
  const bool alike = encoder.overflow_field[1] == field && encoder.inf_code[0] == field &&
                     encoder.inf_code[1] == (field | sign) &&
                     encoder.nan_code[1] == (encoder.nan_code[0] | sign);
  return alike ? choose_rounding<true>(encoder.policy.rounding)
               : choose_rounding<false>(encoder.policy.rounding);
}

}  // namespace octavo::cpu
