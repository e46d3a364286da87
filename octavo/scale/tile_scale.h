// tile_scale(): one amax to one scale, for every rule, scale format and arith: the definition for
// all quantizers. f32 arithmetic in the default floating-point environment, constexpr, host and
// device. Peers' arithmetic is in peer_scale.h.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"
#include "octavo/scale/peer_scale.h"
#include "octavo/scale/scale_parts.h"
#include "octavo/scale/scale_spec.h"

namespace octavo {

// The exponent of a power-of-two rule, before it is limited to what the scale format can hold.
// ceil(log2(amax / max)) is the difference of exponents, plus one where amax has the larger
// mantissa: exact, without a division.
OCTAVO_HD constexpr int rule_exponent(ScaleRule rule, const Format& element, float amax) {
  const Binade top = binade_of(static_cast<float>(max_value(element))), value = binade_of(amax);
  const int floor = value.exponent - top.exponent;
  switch (rule) {
    case ScaleRule::rceil:
      return floor + (value.mantissa > top.mantissa ? 1 : 0);
    case ScaleRule::ceil:
      return floor + (value.mantissa > 0 ? 1 : 0);
    case ScaleRule::even: {
      const int kept = element.twos_complement ? element.magnitude_bits() - 1
                                               : static_cast<int>(element.mantissa_bits);
      return floor + (value.mantissa + (1u << (22 - kept)) > 0x7FFFFFu ? 1 : 0);
    }
    case ScaleRule::floor:
    case ScaleRule::f32:
      break;
  }
  return floor;
}

struct ExponentRange {
  int least, most;
};
OCTAVO_HD constexpr ExponentRange exponent_range(ScaleFormat format) {
  if (format == ScaleFormat::e8m0) return {-127, 127};
  if (format == ScaleFormat::f16) return {-24, 15};
  return {-126, 127};
}

// A tile of zeros: byte 0 in e8m0, else one.
OCTAVO_HD constexpr TileScale zero_scale(const ScaleSpec& spec, float tensor_scale) {
  const float one = spec.format == ScaleFormat::e8m0 ? f32_power_of_two(-127) : 1.0F;
  const float scale = spec.format == ScaleFormat::e4m3_f32 ? tensor_scale : one;
  return {stored_bits(spec.format, one), scale, divides(spec) ? scale : 1.0F};
}

// 2^exponent, as far as the scale format goes.
OCTAVO_HD constexpr TileScale scale_of_exponent(ScaleFormat format, int exponent) {
  const ExponentRange range = exponent_range(format);
  exponent = exponent < range.least ? range.least : exponent > range.most ? range.most : exponent;
  const float scale = f32_power_of_two(exponent);
  const std::uint32_t bits = format == ScaleFormat::e8m0
                                 ? static_cast<std::uint32_t>(exponent + 127)
                                 : stored_bits(format, scale);
  return {bits, scale, f32_power_of_two(-exponent)};
}

OCTAVO_HD constexpr TileScale power_of_two_scale(const ScaleSpec& spec, const Format& element,
                                                 float amax) {
  return scale_of_exponent(spec.format, rule_exponent(spec.rule, element, amax) + spec.margin);
}

OCTAVO_HD constexpr TileScale quotient_scale(const ScaleSpec& spec, const Format& element,
                                             float amax) {
  const float wanted =
      clamped_scale(amax / static_cast<float>(max_value(element)) * f32_power_of_two(spec.margin));
  std::uint32_t bits = stored_bits(spec.format, wanted);
  if (spec.format == ScaleFormat::f16 && bits == 0) bits = 1;  // never a scale of zero
  const float scale = stored_scale(spec.format, bits);
  return {bits, scale, divides(spec) ? scale : reciprocal(scale)};
}

// The second level of e4m3 scales: one f32 for the tensor, such that the tile with its amax gets
// the scale tensor_top: the largest e4m3, or less. `amax` is of the values that
// tensor_amax_of(spec) says.
OCTAVO_HD constexpr float tensor_scale_of(const ScaleSpec& spec, const Format& element,
                                          float amax) {
  if (is_peer(spec.arith)) return peer_tensor_scale(spec, element, amax);
  if (amax == 0.0F) return 1.0F;
  return clamped_scale(amax / (spec.context.tensor_top * static_cast<float>(max_value(element))));
}

// The scale of a tile whose e4m3 code is known.
OCTAVO_HD constexpr TileScale scale_of_code(const ScaleSpec& spec, std::uint32_t code,
                                            float tensor_scale) {
  if (is_peer(spec.arith)) return peer_scale_of_code(spec, code, tensor_scale);
  const float scale = static_cast<float>(decode<e4m3fn>(code)) * tensor_scale;
  return {code, scale, divides(spec) ? scale : reciprocal(scale)};
}

OCTAVO_HD constexpr TileScale two_level_scale(const ScaleSpec& spec, const Format& element,
                                              float amax, float tensor_scale) {
  const float wanted =
      amax / static_cast<float>(max_value(element)) / tensor_scale * f32_power_of_two(spec.margin);
  std::uint32_t code = encode<e4m3fn>(static_cast<double>(wanted));
  if (code == 0) code = 1;  // a tile that is not zero keeps a scale
  return scale_of_code(spec, code, tensor_scale);
}

// Where inv_scale is given instead (delayed scaling).
OCTAVO_HD constexpr TileScale from_inv_scale(ScaleFormat format, float inv_scale) {
  const float scale = 1.0F / inv_scale;
  return {stored_bits(format, scale), scale, inv_scale};
}

// `amax` is of the values that amax_of(spec) says; the tensor's scale and amax matter where scales
// have two levels.
OCTAVO_HD constexpr TileScale tile_scale(const ScaleSpec& spec, const Format& element, float amax,
                                         float tensor_scale = 1.0F, float tensor_amax = 0.0F) {
  if (amax < spec.min_amax) amax = spec.min_amax;
  if (is_peer(spec.arith)) return peer_scale(spec, element, amax, tensor_scale, tensor_amax);
  if (!is_finite(amax)) return poisoned_scale(spec.format);
  if (amax == 0.0F) return zero_scale(spec, tensor_scale);
  if (spec.format == ScaleFormat::e4m3_f32)
    return two_level_scale(spec, element, amax, tensor_scale);
  if (is_power_of_two_rule(spec.rule)) return power_of_two_scale(spec, element, amax);
  return quotient_scale(spec, element, amax);
}

}  // namespace octavo
