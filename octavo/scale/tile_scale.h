// One amax to one scale, for every rule, scale format and arith: the definition that all quantizers
// are held to. f32 arithmetic in the default floating-point environment, constexpr, host and
// device.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"
#include "octavo/scale/scale_spec.h"

namespace octavo {

struct TileScale {
  std::uint32_t bits = 0;  // as stored: the bits of an f32, bf16 or f16, or a code
  float scale = 1.0F;      // what codes are multiplied by (both levels, where there are two)
  float factor = 1.0F;     // u = x * factor, or x / factor where the spec divides
};

inline constexpr float kMinScale = 0x1p-126F, kMaxFloat = 0x1.fffffep127F;

OCTAVO_HD constexpr bool is_finite(float x) {
  return (__builtin_bit_cast(std::uint32_t, x) & 0x7F800000u) != 0x7F800000u;
}
OCTAVO_HD constexpr float f32_nan() { return __builtin_bit_cast(float, 0x7FC00000u); }
// 2^exponent for -149 <= exponent <= 127.
OCTAVO_HD constexpr float f32_power_of_two(int exponent) {
  const std::uint32_t bits =
      exponent >= -126 ? static_cast<std::uint32_t>(exponent + 127) << 23 : 1u << (exponent + 149);
  return __builtin_bit_cast(float, bits);
}

// Powers of two are exact either way, so only quotients divide.
OCTAVO_HD constexpr bool divides(const ScaleSpec& spec) {
  return (spec.arith == Arith::divide || spec.arith == Arith::modelopt) &&
         !is_power_of_two_rule(spec.rule);
}

// A positive, finite f32 as 1.mantissa * 2^exponent, subnormal numbers too.
struct Binade {
  int exponent;
  std::uint32_t mantissa;  // 23 bits
};
OCTAVO_HD constexpr Binade binade_of(float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  int exponent = static_cast<int>(bits >> 23) - 127;
  std::uint32_t mantissa = bits & 0x7FFFFFu;
  if (exponent == -127) {
    exponent = -126;
    while ((mantissa & 0x800000u) == 0) {
      mantissa <<= 1;
      --exponent;
    }
    mantissa &= 0x7FFFFFu;
  }
  return {exponent, mantissa};
}

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

// The format of the stored bits; f32 is stored as it is.
OCTAVO_HD constexpr Format stored_format(ScaleFormat format) {
  switch (format) {
    case ScaleFormat::bf16:
      return bf16_format;
    case ScaleFormat::f16:
      return f16_format;
    case ScaleFormat::e8m0:
      return e8m0fnu;
    default:
      return e4m3fn;
  }
}

OCTAVO_HD constexpr std::uint32_t stored_bits(ScaleFormat format, float scale) {
  if (format == ScaleFormat::f32) return __builtin_bit_cast(std::uint32_t, scale);
  return encode_value(stored_format(format), static_cast<double>(scale)).code;
}
OCTAVO_HD constexpr float stored_scale(ScaleFormat format, std::uint32_t bits) {
  if (format == ScaleFormat::f32) return __builtin_bit_cast(float, bits);
  return static_cast<float>(decode(stored_format(format), bits));
}

// The scale of a tile with a NaN (or Inf) in it, and that of a tile of zeros: byte 0 in e8m0, else
// one. A poisoned tile's factor is not used: its codes are NaN where the format has one, else zero.
OCTAVO_HD constexpr TileScale poisoned_scale(ScaleFormat format) {
  const std::uint32_t bits = format == ScaleFormat::f32    ? 0x7FC00000u
                             : format == ScaleFormat::bf16 ? 0x7FC0u
                             : format == ScaleFormat::f16  ? 0x7E00u
                                                           : stored_format(format).magnitude_mask();
  return {bits, f32_nan(), f32_nan()};
}

OCTAVO_HD constexpr TileScale zero_scale(const ScaleSpec& spec, float tensor_scale) {
  const float one = spec.format == ScaleFormat::e8m0 ? f32_power_of_two(-127) : 1.0F;
  const float scale = spec.format == ScaleFormat::e4m3_f32 ? tensor_scale : one;
  return {stored_bits(spec.format, one), scale, divides(spec) ? scale : 1.0F};
}

OCTAVO_HD constexpr float reciprocal(float x) {
  const float result = 1.0F / x;
  return result > kMaxFloat ? kMaxFloat : result;
}

OCTAVO_HD constexpr float clamped_scale(float scale) {
  return scale < kMinScale ? kMinScale : scale > kMaxFloat ? kMaxFloat : scale;
}

OCTAVO_HD constexpr TileScale power_of_two_scale(const ScaleSpec& spec, const Format& element,
                                                 float amax) {
  const ExponentRange range = exponent_range(spec.format);
  int exponent = rule_exponent(spec.rule, element, amax) + spec.margin;
  exponent = exponent < range.least ? range.least : exponent > range.most ? range.most : exponent;
  const float scale = f32_power_of_two(exponent);
  return {stored_bits(spec.format, scale), scale, f32_power_of_two(-exponent)};
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

// The second level of e4m3 scales: one f32 for the tensor, such that the largest tile scale is the
// largest e4m3. `amax` is that of all finite values.
OCTAVO_HD constexpr float tensor_scale_of(const ScaleSpec& spec, const Format& element,
                                          float amax) {
  const float most = static_cast<float>(max_value(e4m3fn)) * static_cast<float>(max_value(element));
  if (amax == 0.0F) return 1.0F;
  if (spec.arith == Arith::te) {
    const float inverse = most / amax;
    return inverse == 0.0F ? 1.0F : 1.0F / (inverse > kMaxFloat ? kMaxFloat : inverse);
  }
  return clamped_scale(amax / most);
}

OCTAVO_HD constexpr TileScale two_level_scale(const ScaleSpec& spec, const Format& element,
                                              float amax, float tensor_scale) {
  const float wanted =
      amax / static_cast<float>(max_value(element)) / tensor_scale * f32_power_of_two(spec.margin);
  std::uint32_t code = encode_value(e4m3fn, static_cast<double>(wanted)).code;
  if (code == 0) code = 1;  // a tile that is not zero keeps a scale
  const float scale = static_cast<float>(decode(e4m3fn, code)) * tensor_scale;
  return {code, scale, divides(spec) ? scale : reciprocal(scale)};
}

// Transformer Engine: the reciprocal is computed first; Inf is not poison.
OCTAVO_HD constexpr TileScale te_quotient_scale(const ScaleSpec& spec, const Format& element,
                                                float amax) {
  float inverse = 1.0F;
  if (amax > 0.0F && is_finite(amax)) {
    inverse = static_cast<float>(max_value(element)) * f32_power_of_two(-spec.margin) / amax;
    if (inverse > kMaxFloat) inverse = kMaxFloat;
    if (is_power_of_two_rule(spec.rule))
      inverse = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, inverse) & 0xFF800000u);
  }
  const float scale = 1.0F / inverse;
  return {stored_bits(spec.format, scale), scale, inverse};
}

OCTAVO_HD constexpr TileScale te_e8m0_scale(const Format& element, float amax) {
  const float wanted = amax * (1.0F / static_cast<float>(max_value(element)));
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, wanted);
  std::uint32_t byte = bits >> 23;
  if (byte == 255) {
    byte = 254;  // Inf; NaN does not reach here
  } else if ((bits & 0x7FFFFFu) != 0 && byte != 254 && !(byte == 0 && bits <= 0x400000u)) {
    ++byte;
  }
  const float factor = byte == 0 ? 1.0F : f32_power_of_two(127 - static_cast<int>(byte));
  return {byte, f32_power_of_two(static_cast<int>(byte) - 127), factor};
}

OCTAVO_HD constexpr TileScale te_two_level_scale(const Format& element, float amax,
                                                 float tensor_scale) {
  const float inverse_tensor = tensor_scale == 1.0F ? 1.0F : 1.0F / tensor_scale;
  float wanted = amax * (inverse_tensor * (1.0F / static_cast<float>(max_value(element))));
  if (wanted > kMaxFloat) wanted = kMaxFloat;
  const std::uint32_t code = encode_value(e4m3fn, static_cast<double>(wanted)).code;
  const float scale = static_cast<float>(decode(e4m3fn, code)) * tensor_scale;
  return {code, scale, reciprocal(scale)};
}

// Where the factor is given instead (delayed scaling).
OCTAVO_HD constexpr TileScale inverse_scale(ScaleFormat format, float inverse) {
  const float scale = 1.0F / inverse;
  return {stored_bits(format, scale), scale, inverse};
}

// `amax` is of the values that amax_of(spec) says.
OCTAVO_HD constexpr TileScale tile_scale(const ScaleSpec& spec, const Format& element, float amax,
                                         float tensor_scale = 1.0F) {
  if (amax < spec.min_amax) amax = spec.min_amax;
  if (spec.arith == Arith::te) {
    if (spec.format == ScaleFormat::e8m0) return te_e8m0_scale(element, amax);
    if (spec.format == ScaleFormat::e4m3_f32)
      return te_two_level_scale(element, amax, tensor_scale);
    return te_quotient_scale(spec, element, amax);
  }
  if (!is_finite(amax)) return poisoned_scale(spec.format);
  if (amax == 0.0F) return zero_scale(spec, tensor_scale);
  if (spec.format == ScaleFormat::e4m3_f32)
    return two_level_scale(spec, element, amax, tensor_scale);
  if (is_power_of_two_rule(spec.rule)) return power_of_two_scale(spec, element, amax);
  return quotient_scale(spec, element, amax);
}

}  // namespace octavo
