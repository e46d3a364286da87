// Helpers of scale arithmetic: powers of two, binades, stored bits. Shared by octavo's own
// arithmetic (tile_scale.h) and that of its peers (peer_scale.h).
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
  // u = x * factor, and it is inv_scale; or x / factor, and it is the scale, where the spec
  // divides.
  float factor = 1.0F;
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

// The format of the stored bits; f32 is stored as it is.
OCTAVO_HD constexpr Format stored_format(ScaleFormat format) {
  switch (format) {
    case ScaleFormat::bf16:
      return bf16_format;
    case ScaleFormat::f16:
      return f16_format;
    case ScaleFormat::e8m0:
      return e8m0fnu;
    case ScaleFormat::e4m3_f32:
    case ScaleFormat::f32:
      break;
  }
  return e4m3fn;
}

OCTAVO_HD constexpr std::uint32_t stored_bits(ScaleFormat format, float scale) {
  if (format == ScaleFormat::f32) return __builtin_bit_cast(std::uint32_t, scale);
  return encode_value(stored_format(format), static_cast<double>(scale)).code;
}
OCTAVO_HD constexpr float stored_scale(ScaleFormat format, std::uint32_t bits) {
  if (format == ScaleFormat::f32) return __builtin_bit_cast(float, bits);
  return static_cast<float>(decode(stored_format(format), bits));
}

// The scale of a tile with a NaN (or Inf) in it. Its factor is not used: codes are NaN where the
// format has one, else zero.
OCTAVO_HD constexpr TileScale poisoned_scale(ScaleFormat format) {
  const std::uint32_t bits = format == ScaleFormat::f32    ? 0x7FC00000u
                             : format == ScaleFormat::bf16 ? 0x7FC0u
                             : format == ScaleFormat::f16  ? 0x7E00u
                                                           : stored_format(format).magnitude_mask();
  return {bits, f32_nan(), f32_nan()};
}

// The largest product of both levels, where there are two.
OCTAVO_HD constexpr float two_level_max(const Format& element) {
  return static_cast<float>(max_value(e4m3fn)) * static_cast<float>(max_value(element));
}

OCTAVO_HD constexpr float reciprocal(float x) {
  const float result = 1.0F / x;
  return result > kMaxFloat ? kMaxFloat : result;
}

OCTAVO_HD constexpr float clamped_scale(float scale) {
  return scale < kMinScale ? kMinScale : scale > kMaxFloat ? kMaxFloat : scale;
}

}  // namespace octavo
