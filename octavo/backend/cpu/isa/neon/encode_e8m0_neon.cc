// To e8m0fnu: the code is the exponent field of a bf16, rounded. Sources are squeezed to bf16 with
// round-to-odd, so the increments below the field stay exact. Only the subnormals of f32 are a
// special case: 2^-127, the smallest code, sits at half the field's range there, so that what lies
// above it is moved down by half of what the increment is made for.
#include <arm_neon.h>

#include "octavo/backend/cpu/isa/neon/lanes.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"
#include "octavo/backend/cpu/isa/neon/run16.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

// What is added to a bf16 magnitude before its seven mantissa bits are dropped.
struct Increments {
  std::uint16_t normal, subnormal, even;  // even: also the last bit of the exponent, for ties
};

constexpr Increments increments(Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest_even:
      return {0x3F, 0x1F, 1};
    case Rounding::nearest_away:
      return {0x40, 0x20, 0};
    case Rounding::up:
      return {0x7F, 0x3F, 0};
    default:
      return {0, 0, 0};  // toward_zero, and down, which is the same for what is not negative
  }
}

struct Constants {
  Increments increment;
  uint16x8_t limit;
  uint8x16_t below_zero, below_zero_code, zero_code, inf_code, nan_code;

  explicit Constants(const Encoder& encoder) : increment(increments(encoder.policy.rounding)) {
    const EncodePolicy& policy = encoder.policy;
    limit = vdupq_n_u16(static_cast<std::uint16_t>(encoder.overflow_field[0] << 7));
    below_zero = vdupq_n_u8(policy.negative_input == NegativeInput::magnitude ? 0 : 0xFF);
    below_zero_code = vdupq_n_u8(policy.negative_input == NegativeInput::nan ? 0xFF : 0);
    zero_code = vdupq_n_u8(policy.zero_input == ZeroInput::nan ? 0xFF : 0);
    inf_code = vdupq_n_u8(static_cast<std::uint8_t>(encoder.inf_code[0]));
    nan_code = vdupq_n_u8(static_cast<std::uint8_t>(encoder.nan_code[0]));
  }
};

// `kPlain`: zero and what is negative become code 0, and Inf is just another overflow.
template <DType kSource, bool kPlain>
void encode_e8m0(const Encoder& encoder, const void* values, void* codes, std::int64_t n,
                 std::uint64_t) {
  const Constants k(encoder);
  const uint16x8_t inf_bits = vdupq_n_u16(0x7F80);
  run16<kSource>(values, codes, n, [&](const std::byte* from) {
    uint16x8_t raw[2], wide[2], inf[2], nan[2], zero[2];
    load_bfloat<kSource>(from, raw);
    for (int v = 0; v < 2; ++v) {
      const uint16x8_t magnitude = vandq_u16(raw[v], vdupq_n_u16(0x7FFF));
      const uint16x8_t finite = vminq_u16(magnitude, k.limit);
      const uint16x8_t tie = vandq_u16(vshrq_n_u16(finite, 7), vdupq_n_u16(k.increment.even));
      const uint16x8_t is_subnormal = vcltq_u16(finite, vdupq_n_u16(0x80));
      const uint16x8_t normal = vaddq_u16(vdupq_n_u16(k.increment.normal), tie);
      wide[v] =
          vaddq_u16(finite, vbslq_u16(is_subnormal, vdupq_n_u16(k.increment.subnormal), normal));
      nan[v] = vcgtq_u16(magnitude, inf_bits);
      if constexpr (!kPlain) {
        zero[v] = vceqzq_u16(magnitude);
        inf[v] = vceqq_u16(magnitude, inf_bits);
      }
    }
    const auto bytes = [](const uint16x8_t m[2]) {
      return vuzp1q_u8(vreinterpretq_u8_u16(m[0]), vreinterpretq_u8_u16(m[1]));
    };
    const uint8x16_t tops = vuzp2q_u8(vreinterpretq_u8_u16(raw[0]), vreinterpretq_u8_u16(raw[1]));
    const uint8x16_t negative = vcltzq_s8(vreinterpretq_s8_u8(tops));
    uint8x16_t code = vshrn_high_n_u16(vshrn_n_u16(wide[0], 7), wide[1], 7);
    if constexpr (kPlain) {
      code = vbicq_u8(code, negative);
    } else {
      const uint8x16_t is_zero = bytes(zero);
      code = vbslq_u8(is_zero, k.zero_code, code);
      code = vbslq_u8(bytes(inf), k.inf_code, code);
      code = vbslq_u8(vbicq_u8(vandq_u8(negative, k.below_zero), is_zero), k.below_zero_code, code);
    }
    return vbslq_u8(bytes(nan), k.nan_code, code);
  });
}

template <DType kSource>
EncodeSpan choose(const Encoder& encoder) {
  const EncodePolicy& policy = encoder.policy;
  const bool plain = policy.zero_input == ZeroInput::smallest &&
                     policy.negative_input == NegativeInput::clamp &&
                     encoder.inf_code[0] == encoder.overflow_field[0];
  return plain ? encode_e8m0<kSource, true> : encode_e8m0<kSource, false>;
}

}  // namespace

EncodeSpan neon_encode_e8m0(const Encoder& encoder) {
  const Rounding rounding = encoder.policy.rounding;
  const bool rare = rounding == Rounding::to_odd || rounding == Rounding::stochastic ||
                    encoder.policy.tiny_rounds_up;
  if (encoder.format != e8m0fnu || rare) return nullptr;
  switch (encoder.source) {
    case DType::f32:
      return choose<DType::f32>(encoder);
    case DType::bf16:
      return choose<DType::bf16>(encoder);
    case DType::f16:
      return choose<DType::f16>(encoder);
    default:
      return nullptr;
  }
}

}  // namespace octavo::cpu
