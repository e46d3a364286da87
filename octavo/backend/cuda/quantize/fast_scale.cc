#include "octavo/backend/cuda/quantize/fast_scale.h"

#include <bit>
#include <cmath>
#include <limits>

#include "octavo/format/named_formats.h"
#include "octavo/scale/peer_scale.h"
#include "octavo/scale/scale_parts.h"

namespace octavo::cuda {

namespace {

bool te_scale(const ScaleSpec& spec, const Format& element, FastScale* scale) {
  scale->drops_nan = true;
  if (spec.format == ScaleFormat::f32) {
    scale->kind = FastKind::inverse;
    scale->max = static_cast<float>(max_value(element)) * f32_power_of_two(-spec.margin);
    scale->largest = te_largest_inv_scale(spec.context);
    if (is_power_of_two_rule(spec.rule)) scale->kept_bits = 0xFF800000u;
    return true;
  }
  if (spec.format != ScaleFormat::e8m0 || spec.rule != ScaleRule::rceil) return false;
  scale->kind = FastKind::e8m0;
  const TileScale infinite = te_e8m0_scale(element, std::numeric_limits<float>::infinity());
  scale->infinite_bits = infinite.bits;
  scale->infinite_factor = std::bit_cast<std::uint32_t>(infinite.factor);
  // The smallest amax above that of byte 0.
  const float above = std::nextafter(std::ldexp(static_cast<float>(max_value(element)), -127),
                                     std::numeric_limits<float>::infinity());
  if (te_e8m0_scale(element, above).bits == 0)
    scale->te_zero_scale_amax = std::bit_cast<std::uint32_t>(above);
  return true;
}

}  // namespace

bool fast_scale(const ScaleSpec& spec, const Format& element, FastScale* scale) {
  const bool by_te = spec.arith == Arith::te;
  if ((!by_te && (spec.arith != Arith::octavo || spec.non_finite != NonFinite::poison)) ||
      spec.min_amax != 0.0F)
    return false;
  if (by_te && !te_scale(spec, element, scale)) return false;
  if (scale->kind == FastKind::inverse) return true;
  const bool power = is_power_of_two_rule(spec.rule);
  if (spec.format == ScaleFormat::e8m0) {
    scale->kind = FastKind::e8m0;
  } else if (spec.format == ScaleFormat::f32) {
    scale->kind = power ? FastKind::power_f32 : FastKind::quotient;
  } else if (spec.format == ScaleFormat::e4m3_f32 && !power) {
    scale->kind = FastKind::two_level;
  } else {
    return false;
  }
  scale->max = static_cast<float>(max_value(element));
  scale->margin = f32_power_of_two(spec.margin);
  scale->poison_code = element.has_nan() ? nan_input_code(element, EncodePolicy{}, false) : 0;
  if (!power) return true;
  const Binade top = binade_of(scale->max);
  // The exponent and mantissa of a subnormal amax are read without normalization. That is right as
  // long as all of them end at the smallest scale, which they do unless something adds to the
  // exponent. With two below the largest exponent of f32 the largest scale is below the largest of
  // its format.
  if (top.exponent < 2 || spec.margin != 0 || element.twos_complement) return false;
  scale->top_exponent = top.exponent;
  switch (spec.rule) {
    case ScaleRule::rceil:
      scale->carry = 0x7FFFFFu - top.mantissa;
      break;
    case ScaleRule::ceil:
      scale->carry = 0x7FFFFFu;
      break;
    case ScaleRule::even:
      scale->carry = 1u << (22 - element.mantissa_bits);
      break;
    case ScaleRule::floor:
    case ScaleRule::f32:
      scale->carry = 0;
      break;
  }
  return true;
}

FastElement fast_element(const Format& element) {
  if (element == e4m3fn) return FastElement::e4m3;
  if (element == e5m2) return FastElement::e5m2;
  return element == e2m1fn ? FastElement::e2m1 : FastElement::lanes;
}

}  // namespace octavo::cuda
