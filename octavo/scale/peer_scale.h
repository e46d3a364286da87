// Scale arithmetic of Transformer Engine, torchao and ModelOpt, bit for bit:
// docs/numerics/peer-arith.md, line by line, with its names. Nothing is guarded here that they do
// not guard: a scale may be zero, infinite or NaN.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"
#include "octavo/scale/scale_parts.h"
#include "octavo/scale/scale_spec.h"

namespace octavo {

OCTAVO_HD constexpr float rounded_to_bf16(float x) {
  if (x != x) return x;
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  return __builtin_bit_cast(float, (bits + 0x7FFFu + (bits >> 16 & 1u)) & 0xFFFF0000u);
}

// ---- log2 rounded to float32, as eager PyTorch has it: near 2^k it is k for several numbers.
// How many ulps above 2^k (or below, where an ulp is half as large), by the binade of |k|; a power
// of two whose log2 has finer steps on that side counts with the binade before.
OCTAVO_HD constexpr std::uint32_t log2_slack(int k, bool above) {
  constexpr std::uint32_t kPlaces[] = {0, 0, 1, 2, 5, 11, 22, 44};
  const int size = k < 0 ? -k : k;
  int binade = 0;
  while (size >> (binade + 1) != 0) ++binade;
  if ((k < 0) == above && size == 1 << binade) --binade;
  const int at = above ? binade : binade + 1;
  return kPlaces[at < 0 ? 0 : at > 7 ? 7 : at];
}
// For positive, finite v; exact down to where e8m0 ends.
OCTAVO_HD constexpr int ceil_rounded_log2(float v) {
  const Binade at = binade_of(v);
  return at.exponent + (at.mantissa > log2_slack(at.exponent, true) ? 1 : 0);
}
OCTAVO_HD constexpr int floor_rounded_log2(float v) {
  const Binade at = binade_of(v);
  const int next = at.exponent + 1;
  return next - (next == 0 || 0x800000u - at.mantissa > log2_slack(next, false) ? 1 : 0);
}

// ---- One f32 scale.

OCTAVO_HD constexpr float te_largest_inv_scale(const ScaleContext& context) {
  if (context.per_tensor || context.input == InputType::f32) return kMaxFloat;
  return context.input == InputType::bf16 ? 0x1.fep127F : 65504.0F;
}

OCTAVO_HD constexpr TileScale te_f32_scale(const ScaleSpec& spec, const Format& element,
                                           float amax) {
  float inv_scale = 1.0F;
  if (amax > 0.0F && is_finite(amax)) {
    inv_scale = static_cast<float>(max_value(element)) * f32_power_of_two(-spec.margin) / amax;
    if (inv_scale > kMaxFloat) inv_scale = te_largest_inv_scale(spec.context);
    if (is_power_of_two_rule(spec.rule))
      inv_scale =
          __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, inv_scale) & 0xFF800000u);
  }
  const float scale = 1.0F / inv_scale;
  return {__builtin_bit_cast(std::uint32_t, scale), scale, inv_scale};
}

OCTAVO_HD constexpr TileScale torchao_f32_scale(const ScaleSpec& spec, const Format& element,
                                                float amax) {
  if (amax != amax) return poisoned_scale(spec.format);
  const double least = 1e-12, wide = static_cast<double>(amax);
  auto inv_scale = static_cast<float>(max_value(element) / (wide < least ? least : wide));
  if (is_power_of_two_rule(spec.rule) && inv_scale > 0.0F)
    inv_scale = f32_power_of_two(floor_rounded_log2(inv_scale));
  const float scale = 1.0F / inv_scale;
  return {__builtin_bit_cast(std::uint32_t, scale), scale, inv_scale};
}

// torchao_inference, modelopt, modelopt_qtensor: values are divided by the scale.
OCTAVO_HD constexpr TileScale divisor_scale(const ScaleSpec& spec, const Format& element,
                                            float amax) {
  const auto max = static_cast<float>(max_value(element));
  if (spec.arith == Arith::modelopt) {
    if (amax == 0.0F || amax != amax) amax = max;
    amax = amax < kMinScale ? kMinScale : amax > kMaxFloat ? kMaxFloat : amax;
  }
  if (amax != amax) return poisoned_scale(spec.format);
  float scale = amax / max;
  if (spec.arith != Arith::modelopt && spec.context.input == InputType::bf16)
    scale = rounded_to_bf16(scale);
  return {__builtin_bit_cast(std::uint32_t, scale), scale, scale};
}

// ---- A byte of e8m0.

// inv_scale is 2^inv_exponent, which need not be the reciprocal of what the byte says.
OCTAVO_HD constexpr TileScale e8m0_scale(int byte, int inv_exponent) {
  return {static_cast<std::uint32_t>(byte), f32_power_of_two(byte - 127),
          f32_power_of_two(inv_exponent)};
}

OCTAVO_HD constexpr TileScale te_e8m0_scale(const Format& element, float amax) {
  const float v = amax * (1.0F / static_cast<float>(max_value(element)));
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, v), mantissa = bits & 0x7FFFFFu;
  int byte = static_cast<int>(bits >> 23);
  if (byte == 255) {
    byte = 254;  // Inf; NaN does not reach here
  } else if (mantissa != 0 && byte != 254 && !(byte == 0 && bits <= 0x400000u)) {
    ++byte;
  }
  return e8m0_scale(byte, 127 - byte);
}

// The byte of ceil(L2(RN(amax / max))), for an amax that is not NaN.
OCTAVO_HD constexpr int rounded_log2_byte(const Format& element, float amax) {
  const float v = amax / static_cast<float>(max_value(element));
  if (v == 0.0F) return 0;
  if (!is_finite(v)) return 254;
  const int byte = ceil_rounded_log2(v) + 127;
  return byte < 0 ? 0 : byte > 254 ? 254 : byte;
}

OCTAVO_HD constexpr TileScale torchao_e8m0_scale(const ScaleSpec& spec, const Format& element,
                                                 float amax) {
  if (amax != amax) return poisoned_scale(spec.format);
  if (spec.rule == ScaleRule::rceil) {
    const int byte = rounded_log2_byte(element, amax);
    return e8m0_scale(byte, byte == 0 ? 0 : 127 - byte);
  }
  std::uint32_t bits = __builtin_bit_cast(std::uint32_t, amax);
  if (spec.rule == ScaleRule::even) bits += 1u << (22 - static_cast<int>(element.mantissa_bits));
  const int emax = binade_of(static_cast<float>(max_value(element))).exponent;
  int byte = static_cast<int>(bits >> 23) - emax;
  if (spec.rule == ScaleRule::ceil && (bits & 0x7FFFFFu) != 0) ++byte;
  if (byte >= 255) return poisoned_scale(spec.format);
  if (byte < 0) byte = 0;
  return e8m0_scale(byte, byte == 0 ? 126 : 127 - byte);
}

OCTAVO_HD constexpr TileScale modelopt_e8m0_scale(const Format& element, float amax) {
  constexpr Format kMxfp4 = e2m1fn;  // device code has no global objects
  const bool is_mxfp4 = element == kMxfp4;
  if (amax != amax) return is_mxfp4 ? poisoned_scale(ScaleFormat::e8m0) : e8m0_scale(0, 127);
  const int byte = rounded_log2_byte(element, amax);
  return e8m0_scale(byte, 127 - byte);
}

// ---- NVFP4: a code of e4m3, and one f32 for the tensor.

// Transformer Engine's S, the reciprocal of the tensor's scale.
OCTAVO_HD constexpr float te_tensor_inv_scale(const Format& element, float amax) {
  if (amax == 0.0F) return 1.0F;
  const float inv_scale = two_level_max(element) / amax;
  return inv_scale == 0.0F ? 1.0F : inv_scale > kMaxFloat ? kMaxFloat : inv_scale;
}

OCTAVO_HD constexpr float peer_tensor_scale(const ScaleSpec& spec, const Format& element,
                                            float amax) {
  return spec.arith == Arith::te ? 1.0F / te_tensor_inv_scale(element, amax)
                                 : amax / two_level_max(element);
}

// The e4m3 code of `wanted` clamped to two limits; NaN stays.
OCTAVO_HD constexpr std::uint32_t limited_e4m3(float wanted, float least) {
  const auto most = static_cast<float>(max_value(e4m3fn));
  const float limited = wanted < least ? least : wanted > most ? most : wanted;
  if (limited != limited) return e4m3fn.magnitude_mask();
  return encode<e4m3fn>(static_cast<double>(limited));
}

// From a code on, each has a way of its own to what values are multiplied or divided by.
OCTAVO_HD constexpr TileScale te_scale_of_code(std::uint32_t code, float tensor_scale) {
  const float scale = static_cast<float>(decode<e4m3fn>(code)) * tensor_scale;
  return {code, scale, reciprocal(scale)};
}
OCTAVO_HD constexpr TileScale torchao_scale_of_code(std::uint32_t code, float tensor_scale) {
  const auto block = static_cast<float>(decode<e4m3fn>(code));
  return {code, block * tensor_scale, 1.0F / tensor_scale / block};
}
OCTAVO_HD constexpr TileScale modelopt_scale_of_code(std::uint32_t code, float tensor_scale) {
  const float scale = static_cast<float>(decode<e4m3fn>(code)) * tensor_scale;
  return {code, scale, scale};
}

OCTAVO_HD constexpr TileScale te_two_level_scale(const Format& element, float amax,
                                                 float tensor_scale, float tensor_amax) {
  const float inv_scale =
      tensor_amax > 0.0F ? te_tensor_inv_scale(element, tensor_amax) : 1.0F / tensor_scale;
  return te_scale_of_code(
      limited_e4m3(amax * (inv_scale * (1.0F / static_cast<float>(max_value(element)))), 0.0F),
      tensor_scale);
}

OCTAVO_HD constexpr TileScale torchao_two_level_scale(const Format& element, float amax,
                                                      float tensor_scale) {
  return torchao_scale_of_code(
      limited_e4m3(amax / static_cast<float>(max_value(element)) / tensor_scale, 0x1p-6F),
      tensor_scale);
}

OCTAVO_HD constexpr TileScale modelopt_two_level_scale(const Format& element, float amax,
                                                       float tensor_scale) {
  float wanted = amax / (static_cast<float>(max_value(element)) * tensor_scale);
  if (wanted == 0.0F) wanted = 1.0F;
  return modelopt_scale_of_code(limited_e4m3(wanted, 0x1p-9F), tensor_scale);
}

// ---- All of them.

OCTAVO_HD constexpr bool is_modelopt(Arith arith) {
  return arith == Arith::modelopt || arith == Arith::modelopt_qtensor;
}

OCTAVO_HD constexpr TileScale peer_scale_of_code(const ScaleSpec& spec, std::uint32_t code,
                                                 float tensor_scale) {
  return spec.arith == Arith::te   ? te_scale_of_code(code, tensor_scale)
         : is_modelopt(spec.arith) ? modelopt_scale_of_code(code, tensor_scale)
                                   : torchao_scale_of_code(code, tensor_scale);
}

OCTAVO_HD constexpr TileScale peer_scale(const ScaleSpec& spec, const Format& element, float amax,
                                         float tensor_scale, float tensor_amax) {
  const bool by_te = spec.arith == Arith::te, by_modelopt = is_modelopt(spec.arith);
  if (te_poisons(spec) && !is_finite(amax)) return poisoned_scale(spec.format);
  if (spec.format == ScaleFormat::e8m0)
    return by_te         ? te_e8m0_scale(element, amax)
           : by_modelopt ? modelopt_e8m0_scale(element, amax)
                         : torchao_e8m0_scale(spec, element, amax);
  if (spec.format == ScaleFormat::e4m3_f32)
    return by_te         ? te_two_level_scale(element, amax, tensor_scale, tensor_amax)
           : by_modelopt ? modelopt_two_level_scale(element, amax, tensor_scale)
                         : torchao_two_level_scale(element, amax, tensor_scale);
  return by_te                          ? te_f32_scale(spec, element, amax)
         : spec.arith == Arith::torchao ? torchao_f32_scale(spec, element, amax)
                                        : divisor_scale(spec, element, amax);
}

// ---- Adjustment of u by peers before it is encoded.
enum class PeerAdjust : std::uint8_t {
  none,
  bf16,           // rounded to bf16 (FP8QTensor; the export, per tensor)
  no_minus_zero,  // NVFP4 of ModelOpt
  ties_to_zero,   // MXFP4 of ModelOpt, where zero is -0
};

OCTAVO_HD constexpr PeerAdjust peer_adjust_of(const ScaleSpec& spec, const Format& element) {
  if (!is_modelopt(spec.arith)) return PeerAdjust::none;
  if (spec.format == ScaleFormat::e4m3_f32) return PeerAdjust::no_minus_zero;
  if (spec.format == ScaleFormat::e8m0)
    return element == e2m1fn ? PeerAdjust::ties_to_zero : PeerAdjust::none;
  // The export divides bf16 weights by a scale without dimensions, which leaves the quotient bf16;
  // a scale per row makes it f32.
  const bool rounds = spec.arith == Arith::modelopt_qtensor || spec.context.per_tensor;
  return rounds && spec.context.input == InputType::bf16 ? PeerAdjust::bf16 : PeerAdjust::none;
}

// A tie has no low mantissa bits; one ulp nearer to zero it is not a tie. Other values stay on
// their side of the tie.
OCTAVO_HD constexpr float nudged_off_tie(float u) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, u);
  if ((bits << 1) == 0) return -0.0F;
  return __builtin_bit_cast(float, bits - ((bits & 0xFFFFu) == 0 && is_finite(u) ? 1u : 0u));
}

OCTAVO_HD constexpr float peer_adjusted(PeerAdjust peer_adjust, float u) {
  if (peer_adjust == PeerAdjust::bf16) return rounded_to_bf16(u);
  if (peer_adjust == PeerAdjust::no_minus_zero) return u + 0.0F;
  if (peer_adjust == PeerAdjust::ties_to_zero) return nudged_off_tie(u);
  return u;
}
// No peer takes f64; u keeps its precision.
OCTAVO_HD constexpr double peer_adjusted(PeerAdjust peer_adjust, double u) {
  if (peer_adjust == PeerAdjust::no_minus_zero) return u + 0.0;
  return u;
}

}  // namespace octavo
