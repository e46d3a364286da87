// f32 to e8m0fnu: the code is the exponent field, rounded up by an increment below it. Only the f32
// subnormals need another increment: there 2^-127, the smallest code, sits at half the field's range.
#include <arm_neon.h>

#include <cstring>

#include "octavo/backend/cpu/neon/lanes.h"
#include "octavo/backend/cpu/neon/neon_internal.h"
#include "octavo/format/named_formats.h"

namespace octavo::cpu {
namespace {

struct Increments {
  std::uint32_t normal, subnormal, even;  // even: add the last bit of the exponent, for ties
};

constexpr Increments increments(Rounding rounding) {
  switch (rounding) {
    case Rounding::nearest_even: return {0x3FFFFF, 0x1FFFFF, 1};
    case Rounding::nearest_away: return {0x400000, 0x200000, 0};
    case Rounding::up: return {0x7FFFFF, 0x3FFFFF, 0};
    default: return {0, 0, 0};  // toward_zero, and down, which is the same for what is not negative
  }
}

template <DType kSource>
void encode_e8m0(const Encoder& encoder, const void* values, void* codes, std::int64_t n, std::uint64_t) {
  const Increments k = increments(encoder.policy.rounding);
  const EncodePolicy& policy = encoder.policy;
  const uint32x4_t limit = vdupq_n_u32(encoder.overflow_field[0] << 23);
  const bool keeps_magnitude = policy.negative_input == NegativeInput::magnitude;
  const uint8x16_t below_zero = vdupq_n_u8(keeps_magnitude ? 0 : 0xFF);
  const uint8x16_t below_zero_code = vdupq_n_u8(policy.negative_input == NegativeInput::nan ? 0xFF : 0);
  const uint8x16_t zero_code = vdupq_n_u8(policy.zero_input == ZeroInput::nan ? 0xFF : 0);
  const uint8x16_t inf_code = vdupq_n_u8(static_cast<std::uint8_t>(encoder.inf_code[0]));
  const uint8x16_t nan_code = vdupq_n_u8(static_cast<std::uint8_t>(encoder.nan_code[0]));

  const auto convert = [&](const std::byte* from) {
    uint32x4_t raw[4], field[4], zero[4], inf[4], nan[4];
    F32Source<kSource>::load(from, raw);
    for (int v = 0; v < 4; ++v) {
      const uint32x4_t magnitude = vandq_u32(raw[v], vdupq_n_u32(0x7FFFFFFFu));
      const uint32x4_t finite = vminq_u32(magnitude, limit);
      const uint32x4_t tie = vandq_u32(vshrq_n_u32(finite, 23), vdupq_n_u32(k.even));
      const uint32x4_t is_subnormal = vcltq_u32(finite, vdupq_n_u32(0x800000u));
      const uint32x4_t increment = vbslq_u32(is_subnormal, vdupq_n_u32(k.subnormal), vaddq_u32(vdupq_n_u32(k.normal), tie));
      field[v] = vshrq_n_u32(vaddq_u32(finite, increment), 23);
      zero[v] = vceqzq_u32(magnitude);
      inf[v] = vceqq_u32(magnitude, vdupq_n_u32(0x7F800000u));
      nan[v] = vcgtq_u32(magnitude, vdupq_n_u32(0x7F800000u));
    }
    const uint8x16_t is_zero = F32Lanes::low_bytes(zero);
    const uint8x16_t negative = vbicq_u8(vandq_u8(vcltzq_s8(vreinterpretq_s8_u8(F32Lanes::top_bytes(raw))), below_zero), is_zero);
    uint8x16_t code = vbslq_u8(is_zero, zero_code, F32Lanes::low_bytes(field));
    code = vbslq_u8(F32Lanes::low_bytes(inf), inf_code, code);
    code = vbslq_u8(negative, below_zero_code, code);
    return vbslq_u8(F32Lanes::low_bytes(nan), nan_code, code);
  };

  constexpr std::int64_t kBytes = element_bytes(kSource);
  const auto* from = static_cast<const std::byte*>(values);
  auto* to = static_cast<std::uint8_t*>(codes);
  std::int64_t done = 0;
  for (; done + 16 <= n; done += 16) vst1q_u8(to + done, convert(from + done * kBytes));
  if (done < n) {
    alignas(16) std::byte staged[16 * kBytes] = {};
    alignas(16) std::uint8_t out[16];
    std::memcpy(staged, from + done * kBytes, static_cast<std::size_t>((n - done) * kBytes));
    vst1q_u8(out, convert(staged));
    std::memcpy(to + done, out, static_cast<std::size_t>(n - done));
  }
}

}  // namespace

EncodeSpan neon_encode_e8m0(const Encoder& encoder) {
  const Rounding rounding = encoder.policy.rounding;
  const bool rare = rounding == Rounding::to_odd || rounding == Rounding::stochastic || encoder.policy.tiny_rounds_up;
  if (encoder.format != e8m0fnu || rare) return nullptr;
  switch (encoder.source) {
    case DType::f32: return encode_e8m0<DType::f32>;
    case DType::bf16: return encode_e8m0<DType::bf16>;
    case DType::f16: return encode_e8m0<DType::f16>;
    default: return nullptr;
  }
}

}  // namespace octavo::cpu
