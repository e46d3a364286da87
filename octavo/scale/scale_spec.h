// How the scale of a tile follows from its amax: plain data that crosses the kernel door. The
// arithmetic is in tile_scale.h.
#pragma once

#include <cstdint>

namespace octavo {

// How a scale is stored.
enum class ScaleFormat : std::uint8_t {
  f32,
  bf16,
  f16,
  e8m0,      // a power of two in a byte (MX)
  e4m3_f32,  // e4m3, times one f32 for the whole tensor (NVFP4)
};

// Which scale an amax asks for. With `max` the largest value of the element format and emax the
// exponent of that value:
enum class ScaleRule : std::uint8_t {
  f32,    // amax / max, the quotient itself
  rceil,  // 2^ceil(log2(amax / max)): the smallest power of two that saturates nothing
  floor,  // 2^(floor(log2 amax) - emax): OCP MX 1.0, section 6.3; the largest values may saturate
  ceil,   // 2^(ceil(log2 amax) - emax): saturates nothing, wastes up to a bit
  even,   // floor, of amax rounded half up to the element's mantissa
};

// What a NaN or Inf among the values does to its tile.
enum class NonFinite : std::uint8_t {
  poison,    // the tile's scale is NaN, so that all of it decodes to NaN: a fault stays visible
  saturate,  // left out of the amax; Inf becomes the largest value, NaN what the encode policy says
};

// Whose order of floating-point operations, bit for bit: docs/numerics/scales.md has the table.
enum class Arith : std::uint8_t {
  octavo,    // scale = RN(amax / max), u = RN(x * RN(1 / scale))
  divide,    // scale = RN(amax / max), u = RN(x / scale)
  te,        // Transformer Engine: inv = RN(max / amax), u = RN(x * inv), scale = RN(1 / inv)
  torchao,   // torchao
  modelopt,  // NVIDIA ModelOpt
};

struct ScaleSpec {
  ScaleFormat format = ScaleFormat::f32;
  ScaleRule rule = ScaleRule::f32;
  NonFinite non_finite = NonFinite::poison;
  Arith arith = Arith::octavo;
  int margin = 0;         // the scale is multiplied by 2^margin: room for growth
  float min_amax = 0.0F;  // a smaller amax counts as this

  constexpr bool operator==(const ScaleSpec&) const = default;
};

inline constexpr int kMaxMargin = 64;

constexpr bool is_power_of_two_rule(ScaleRule rule) { return rule != ScaleRule::f32; }

// Which values count for an amax.
enum class AmaxOf : std::uint8_t {
  all,         // NaN if there is one, else Inf if there is one
  not_nan,     // NaN left out
  only_finite  // NaN and Inf left out
};

constexpr AmaxOf amax_of(const ScaleSpec& spec) {
  if (spec.arith == Arith::te) return AmaxOf::not_nan;
  return spec.non_finite == NonFinite::poison ? AmaxOf::all : AmaxOf::only_finite;
}

}  // namespace octavo
