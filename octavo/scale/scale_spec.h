// ScaleSpec: how the scale of a tile follows from its amax (scale format, rule, arith), as plain
// data for kernels. The arithmetic is in tile_scale.h.
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

// From an amax to a scale. With `max` the largest value of the element format and emax the exponent
// of that value:
enum class ScaleRule : std::uint8_t {
  f32,    // amax / max, the quotient itself
  rceil,  // 2^ceil(log2(amax / max)): the smallest power of two that saturates nothing
  floor,  // 2^(floor(log2 amax) - emax): OCP MX 1.0, section 6.3; the largest values may saturate
  ceil,   // 2^(ceil(log2 amax) - emax): saturates nothing, wastes up to a bit
  even,   // floor, of amax rounded half up to the element's mantissa
};

// Effect of a NaN or Inf on its tile.
enum class NonFinite : std::uint8_t {
  poison,    // the tile's scale is NaN, so that all of it decodes to NaN: a fault stays visible
  saturate,  // left out of the amax; Inf becomes the largest value, NaN what the encode policy says
};

// The order of floating-point operations of octavo or of a peer, bit for bit:
// docs/numerics/peer-arith.md. Peers also treat zero, tiny, infinite and NaN tiles in their own way
// (non_finite does not apply, except to te's two-level scales) and know only some rules:
// check_scaling says which.
enum class Arith : std::uint8_t {
  octavo,             // scale = RN(amax / max), u = RN(x * RN(1 / scale))
  divide,             // scale = RN(amax / max), u = RN(x / scale)
  te,                 // Transformer Engine: inv = RN(max / amax), u = RN(x * inv)
  torchao,            // torchao: float8 training, MX, NVFP4
  modelopt,           // NVIDIA ModelOpt: export of FP8 weights, MXFP8, MXFP4, NVFP4
  torchao_inference,  // torchao's Float8Tensor: `divide`, bf16 scales for bf16 input
  modelopt_qtensor,   // ModelOpt's FP8QTensor: the same, and bf16 quotients too
};

constexpr bool is_peer(Arith arith) { return arith != Arith::octavo && arith != Arith::divide; }

// Other inputs of the arithmetic of some peers. quantize fills it in, whatever a caller wrote.
enum class InputType : std::uint8_t { f32, f16, bf16 };
struct ScaleContext {
  InputType input = InputType::f32;
  bool per_tensor = false;  // the tile is the whole tensor
  // The e4m3 scale that a tile with the tensor's amax gets: tensor_top_of its policy.
  float tensor_top = 448.0F;
  // No choice of the caller's, so two specs that differ only here are the same.
  constexpr bool operator==(const ScaleContext&) const { return true; }
};

// What a tile's scale is made from: its amax, or something that fits the data better.
enum class AmaxPolicy : std::uint8_t {
  max,
  percentile,  // the magnitude that `percentile` per cent of the tile do not exceed
  // The candidate scale with the least squared error: docs/numerics/scales.md. They differ in the
  // candidates and in what is summed.
  mse,
  four_over_six,   // NVFP4: of the two that map the amax to 6 and to 4
  modelopt_sweep,  // NVFP4: of all e4m3 codes, by ModelOpt's arithmetic
  wmse,            // those of mse, errors weighted by column
};

constexpr bool tries_scales(AmaxPolicy policy) {
  return policy != AmaxPolicy::max && policy != AmaxPolicy::percentile;
}

// Policies that try larger scales than the amax asks for leave room for them above the tile that
// has the tensor's amax: six codes of e4m3 above 256 is 448, and 384 is 3/2 of 256.
constexpr float tensor_top_of(AmaxPolicy policy) {
  return tries_scales(policy) && policy != AmaxPolicy::modelopt_sweep ? 256.0F : 448.0F;
}

struct ScaleSpec {
  ScaleFormat format = ScaleFormat::f32;
  ScaleRule rule = ScaleRule::f32;
  NonFinite non_finite = NonFinite::poison;
  Arith arith = Arith::octavo;
  int margin = 0;         // the scale is multiplied by 2^margin: room for growth
  float min_amax = 0.0F;  // a smaller amax counts as this
  ScaleContext context{};

  constexpr bool operator==(const ScaleSpec&) const = default;
};

inline constexpr int kMaxMargin = 64;

constexpr bool is_power_of_two_rule(ScaleRule rule) { return rule != ScaleRule::f32; }

// u = x / scale instead of x * inv_scale? Powers of two are exact either way, so only quotients
// divide.
constexpr bool divides(const ScaleSpec& spec) {
  if (is_power_of_two_rule(spec.rule)) return false;
  switch (spec.arith) {
    case Arith::divide:
    case Arith::modelopt:
    case Arith::modelopt_qtensor:
      return true;
    case Arith::torchao_inference:
      return spec.format != ScaleFormat::e4m3_f32;
    case Arith::octavo:
    case Arith::te:
    case Arith::torchao:
      break;
  }
  return false;
}

// Which values count for an amax.
enum class AmaxOf : std::uint8_t {
  all,         // NaN if there is one, else Inf if there is one
  not_nan,     // NaN left out
  only_finite  // NaN and Inf left out
};

// Transformer Engine's FP4 has no way to show a fault: its elements have no NaN, and its amax drops
// them. So here it poisons as octavo does; `saturate` is its own behaviour.
constexpr bool te_poisons(const ScaleSpec& spec) {
  return spec.arith == Arith::te && spec.format == ScaleFormat::e4m3_f32 &&
         spec.non_finite == NonFinite::poison;
}

constexpr AmaxOf amax_of(const ScaleSpec& spec) {
  if (spec.arith == Arith::te) return te_poisons(spec) ? AmaxOf::all : AmaxOf::not_nan;
  if (is_peer(spec.arith) || spec.non_finite == NonFinite::poison) return AmaxOf::all;
  return AmaxOf::only_finite;
}

// For the second level of e4m3 scales: a tensor is not poisoned by one of its tiles.
constexpr AmaxOf tensor_amax_of(const ScaleSpec& spec) {
  return is_peer(spec.arith) && !te_poisons(spec) ? amax_of(spec) : AmaxOf::only_finite;
}

}  // namespace octavo
