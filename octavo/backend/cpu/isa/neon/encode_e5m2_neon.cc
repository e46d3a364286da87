// To e5m2, which is the upper byte of an f16: FCVTN, rounding toward zero, handles the exponent and
// the subnormal numbers, and an integer rounding drops the last eight bits.
//
// Whether the narrowing was exact matters only where the dropped byte says "tie" or "exact", which
// is where the f16 is a multiple of 2^7. There every bit that FCVTN lost stands in the lower half
// of the f32 (a multiple of 2^7 that is not zero is at least 2^-17, and keeps the bits above 2^-24:
// seven of its mantissa or more), so one comparison of halves tells. The exception are values below
// 2^-24, whose f16 is zero; the modes that depend on them read the upper half too.
//
// 23 operations for sixteen f32 in nearest_even, against 35 in 16-bit floating-point lanes. No
// branch or address depends on data.
#include <arm_neon.h>

#include "octavo/backend/cpu/isa/neon/lanes.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon/run16.h"
#include "octavo/backend/cpu/isa/neon/special_codes.h"
#include "octavo/base/fp_env.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

constexpr std::uint16_t kHalfInf = 0x7C00, kDropped = 0xFF;

constexpr bool is_directed(Rounding rounding) {
  return rounding == Rounding::up || rounding == Rounding::down || rounding == Rounding::to_odd;
}

// Eight elements, truncated to f16.
struct Truncated {
  uint16x8_t half;
  uint16x8_t exact;  // all ones where nothing was lost, as far as ties go
  uint16x8_t upper;  // the upper half of the f32 without its sign; directed modes only
};

template <DType kSource, Rounding kRounding>
[[gnu::always_inline]] inline void load_truncated(const std::byte* from, Truncated to[2]) {
  if constexpr (kSource == DType::f16) {
    const auto* p = reinterpret_cast<const std::uint16_t*>(from);
    const uint16x8_t all = vdupq_n_u16(0xFFFF), none = vdupq_n_u16(0);
    to[0] = {vld1q_u16(p), all, none};
    to[1] = {vld1q_u16(p + 8), all, none};
  } else {
    uint32x4_t wide[4];
    F32Source<kSource>::load(from, wide);
    for (int i = 0; i < 2; ++i) {
      const uint32x4_t a = wide[2 * i], b = wide[2 * i + 1];
      const float16x4_t low = vcvt_f16_f32(vreinterpretq_f32_u32(a));
      to[i].half = vreinterpretq_u16_f16(vcvt_high_f16_f32(low, vreinterpretq_f32_u32(b)));
      const uint16x8_t a16 = vreinterpretq_u16_u32(a), b16 = vreinterpretq_u16_u32(b);
      to[i].exact = vceqzq_u16(vuzp1q_u16(a16, b16));
      if constexpr (is_directed(kRounding))
        to[i].upper = vandq_u16(vuzp2q_u16(a16, b16), vdupq_n_u16(0x7FFF));
    }
  }
}

// A magnitude in f16 whose upper byte, by drop_byte, is the rounded field.
template <DType kSource, Rounding kRounding>
[[gnu::always_inline]] inline uint16x8_t before_drop(const Truncated& in, uint16x8_t magnitude,
                                                     uint16x8_t negative) {
  if constexpr (kRounding == Rounding::nearest_even) {
    // Half-up, of one less where nothing was lost and the field's last bit is even: such a tie
    // stays below one half. Zero becomes -1, which rounds to 0.
    const uint16x8_t less = vbicq_u16(in.exact, vshlq_n_u16(in.half, 7));
    return vreinterpretq_u16_s16(
        vsraq_n_s16(vreinterpretq_s16_u16(magnitude), vreinterpretq_s16_u16(less), 15));
  }
  if constexpr (is_directed(kRounding)) {
    const uint16x8_t one = vdupq_n_u16(1);
    // Values below 2^-24 are zero now, but were not exact.
    uint16x8_t sticky = magnitude;
    if constexpr (kSource != DType::f16) sticky = vmaxq_u16(sticky, vminq_u16(in.upper, one));
    if constexpr (kRounding == Rounding::to_odd) {
      const uint16x8_t inexact = vtstq_u16(vornq_u16(sticky, in.exact), vdupq_n_u16(kDropped));
      sticky = vorrq_u16(sticky, vandq_u16(inexact, vdupq_n_u16(kDropped + 1)));
      // Truncation keeps what is beyond f16 at its largest value, which is odd; it must overflow.
      const uint16x8_t beyond = vcgeq_u16(in.upper, vdupq_n_u16(0x4780));  // 65536
      return vmaxq_u16(sticky, vandq_u16(beyond, vdupq_n_u16(kHalfInf)));
    }
    sticky = vorrq_u16(sticky, vbicq_u16(one, in.exact));
    const uint16x8_t away = kRounding == Rounding::up ? vmvnq_u16(negative) : negative;
    return vaddq_u16(sticky, vandq_u16(away, vdupq_n_u16(kDropped)));
  }
  return magnitude;
}

template <Rounding kRounding>
[[gnu::always_inline]] inline uint8x16_t drop_byte(const uint16x8_t wide[2]) {
  if constexpr (kRounding == Rounding::nearest_even || kRounding == Rounding::nearest_away) {
    const int16x8_t a = vreinterpretq_s16_u16(wide[0]), b = vreinterpretq_s16_u16(wide[1]);
    return vqrshrun_high_n_s16(vqrshrun_n_s16(a, 8), b, 8);
  }
  return vuzp2q_u8(vreinterpretq_u8_u16(wide[0]), vreinterpretq_u8_u16(wide[1]));
}

// `kAlike`: both signs have one limit, Inf is just another overflow, and NaN keeps its sign.
template <DType kSource, Rounding kRounding, bool kAlike>
[[gnu::always_inline]] inline uint8x16_t convert16(const SpecialCodes& k, const std::byte* from) {
  Truncated in[2];
  load_truncated<kSource, kRounding>(from, in);
  uint16x8_t wide[2], is_inf[2], is_nan[2];
  for (int v = 0; v < 2; ++v) {
    const uint16x8_t magnitude = vandq_u16(in[v].half, vdupq_n_u16(0x7FFF));
    const uint16x8_t negative = vcltzq_s16(vreinterpretq_s16_u16(in[v].half));
    is_inf[v] = vceqq_u16(magnitude, vdupq_n_u16(kHalfInf));
    is_nan[v] = vcgtq_u16(magnitude, vdupq_n_u16(kHalfInf));
    wide[v] = before_drop<kSource, kRounding>(in[v], magnitude, negative);
  }
  const auto low_bytes = [](const uint16x8_t v[2]) {
    return vuzp1q_u8(vreinterpretq_u8_u16(v[0]), vreinterpretq_u8_u16(v[1]));
  };
  const uint8x16_t tops =
      vuzp2q_u8(vreinterpretq_u8_u16(in[0].half), vreinterpretq_u8_u16(in[1].half));
  const uint8x16_t sign_bit = vdupq_n_u8(0x80), field = drop_byte<kRounding>(wide);
  if constexpr (kAlike) {
    // FCVTN makes every NaN quiet, so its field is 0x7E or more and Inf's is 0x7C. An f16 comes as
    // it is: its NaN may round down to Inf's field.
    const uint8x16_t nan =
        kSource == DType::f16 ? low_bytes(is_nan) : vcgtq_u8(field, vdupq_n_u8(0x7D));
    return vbslq_u8(sign_bit, tops, vbslq_u8(nan, k.nan[0], vminq_u8(field, k.limit[0])));
  }
  const uint8x16_t negative = vcltzq_s8(vreinterpretq_s8_u8(tops));
  uint8x16_t code = vminq_u8(field, vbslq_u8(negative, k.limit[1], k.limit[0]));
  code = vbslq_u8(sign_bit, tops, code);
  code = vbslq_u8(low_bytes(is_inf), vbslq_u8(negative, k.inf[1], k.inf[0]), code);
  return vbslq_u8(low_bytes(is_nan), vbslq_u8(negative, k.nan[1], k.nan[0]), code);
}

template <DType kSource, Rounding kRounding, bool kAlike>
void encode_e5m2(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                 std::uint64_t) {
  const FpEnvGuard guard(FpRounding::zero);
  const SpecialCodes k(encoder);
  run16<kSource>(values, codes, n, [&](const std::byte* from) {
    return convert16<kSource, kRounding, kAlike>(k, from);
  });
}

template <DType kSource, bool kAlike>
EncodeSpan choose_rounding(Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest_even:
      return encode_e5m2<kSource, Rounding::nearest_even, kAlike>;
    case Rounding::nearest_away:
      return encode_e5m2<kSource, Rounding::nearest_away, kAlike>;
    case Rounding::toward_zero:
      return encode_e5m2<kSource, Rounding::toward_zero, kAlike>;
    case Rounding::up:
      return encode_e5m2<kSource, Rounding::up, kAlike>;
    case Rounding::down:
      return encode_e5m2<kSource, Rounding::down, kAlike>;
    case Rounding::to_odd:
      return encode_e5m2<kSource, Rounding::to_odd, kAlike>;
    case Rounding::stochastic:
      return nullptr;
  }
  return nullptr;
}

template <DType kSource>
EncodeSpan choose(const Encoder& encoder) {
  const std::uint32_t field = encoder.overflow_field[0], sign = e5m2.sign_mask();
  const bool alike = encoder.overflow_field[1] == field && encoder.inf_code[0] == field &&
                     encoder.inf_code[1] == (field | sign) &&
                     encoder.nan_code[1] == (encoder.nan_code[0] | sign);
  return alike ? choose_rounding<kSource, true>(encoder.policy.rounding)
               : choose_rounding<kSource, false>(encoder.policy.rounding);
}

}  // namespace

EncodeSpan neon_encode_e5m2(const Encoder& encoder) {
  if (encoder.format != e5m2 || encoder.policy.via_f32) return nullptr;
  switch (encoder.source) {
    case DType::f32:
      return choose<DType::f32>(encoder);
    case DType::f64:
      return choose<DType::f64>(encoder);
    case DType::f16:
      return choose<DType::f16>(encoder);
    case DType::bf16:
      return choose<DType::bf16>(encoder);
    case DType::code:
      break;
  }
  return nullptr;
}

}  // namespace octavo::cpu
