#include "octavo/backend/cuda/convert/element_plans.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"
#include "octavo/round/encode_edges.h"
#include "octavo/scale/scale_parts.h"

namespace octavo::cuda {

bool encode_plan(const Format& format, const EncodePolicy& policy, EncodePlan* plan,
                 EncodeKind* kind) {
  const bool powers = format == e8m0fnu;
  if (!powers && !fits_f32(format)) return false;
  const EncodeEdges edges = encode_edges(format, policy);
  *plan = {};
  bool inf_special = false;
  for (const int negative : {0, 1}) {
    const auto at = static_cast<std::size_t>(negative);
    const double limit = grid_value(format, edges.overflow_field[at]);
    plan->limit[negative] = std::bit_cast<std::uint32_t>(static_cast<float>(limit));
    plan->inf_code[negative] = edges.inf_code[at];
    plan->nan_code[negative] = edges.nan_code[at];
    inf_special |= overflow_code(format, policy, negative != 0, false) != plan->inf_code[negative];
  }
  const std::uint32_t nan = format.has_nan() ? format.magnitude_mask() : 0;
  plan->inf_flips = plan->inf_code[0] ^ plan->inf_code[1];
  plan->nan_flips = plan->nan_code[0] ^ plan->nan_code[1];
  plan->min_field = static_cast<std::uint32_t>(format.min_exponent() + 127);
  plan->shift = 23u - format.mantissa_bits;
  plan->mantissa_bits = format.mantissa_bits;
  plan->sign_shift = 31u - static_cast<std::uint32_t>(format.magnitude_bits());
  plan->zero_sign = format.has_negative_zero() ? format.sign_mask() : 0;
  plan->code_mask = format.code_mask();
  plan->stochastic_bits = static_cast<std::uint32_t>(policy.stochastic_bits);
  plan->sign_bit = format.sign_mask();
  plan->sign_below = static_cast<std::uint32_t>(7 - std::min(7, format.magnitude_bits()));
  plan->sign_down = 1u << (32u - plan->sign_shift);
  plan->min_binade = plan->min_field << 23;
  plan->magic = f32_power_of_two(static_cast<int>(plan->shift));
  plan->step_mask = (1u << (format.mantissa_bits + 2u)) - 1u;
  plan->down_shift = 1u << (32u - plan->shift);
  plan->raw_offset = (plan->min_field + plan->shift) << format.mantissa_bits;
  plan->finer_magic = f32_power_of_two(static_cast<int>(plan->shift) - 1);
  const int draw_exponent = -static_cast<int>(format.mantissa_bits) - policy.stochastic_bits;
  if (policy.rounding == Rounding::stochastic) {
    plan->draw_scale = f32_power_of_two(draw_exponent);
    plan->draw_base = static_cast<std::uint32_t>(127 + 7 + policy.stochastic_bits) << 23;
    plan->step_mask = (1u << plan->shift) - 1u;
    plan->raw_offset += kDrawOffset;
  }
  if (policy.rounding == Rounding::nearest_away)
    plan->raw_offset = plan->min_field << format.mantissa_bits;
  plan->raw_nan = plan->nan_code[0] + plan->raw_offset;
  plan->inf_beyond = inf_special ? kMaxFloat : std::numeric_limits<float>::infinity();
  plan->signed_top = format.is_signed ? 0x80000000u : 0u;
  const bool refused = !format.is_signed && policy.negative_input != NegativeInput::magnitude;
  plan->negative_beyond = refused ? 0x80000000u : 0xFFFFFFFFu;
  plan->negative_code = policy.negative_input == NegativeInput::nan ? nan : 0;
  plan->zero_code = policy.zero_input == ZeroInput::nan ? nan : 0;
  plan->tiny_below = policy.tiny_rounds_up ? 0x800000u : 0u;
  // Conditions for rounding by an f32 sum: the sum is finite; ties go to the even step, and fields
  // without mantissa bits are not even when their step is; a draw has its bits below a step.
  const bool finite =
      (plan->limit[0] >> 23) + plan->shift < 255 && (plan->limit[1] >> 23) + plan->shift < 255;
  const bool has_room = policy.rounding != Rounding::stochastic ||
                        (format.mantissa_bits + policy.stochastic_bits <= 22 &&
                         format.min_exponent() + draw_exponent >= -149);
  // 2 * mantissa bits: the steps of a sum must end below the bits its exponent is taken from.
  const bool sums = format.is_signed && format.mantissa_bits >= 1 && format.mantissa_bits <= 10 &&
                    finite && has_room;
  if (format.twos_complement && !sums) return false;
  // Where Inf becomes the same code as NaN, the comparison that detects NaN detects Inf, too.
  const bool inf_is_nan = inf_special && plan->inf_code[0] == plan->nan_code[0] &&
                          plan->inf_code[1] == plan->nan_code[1] && !format.twos_complement;
  plan->number_most = inf_is_nan ? kMaxFloat : std::numeric_limits<float>::infinity();
  const bool usual =
      (!inf_special || inf_is_nan) && (plan->limit[0] == plan->limit[1] || format.twos_complement);
  const bool nan_keeps_sign =
      plan->nan_flips == plan->sign_bit && plan->nan_code[0] < plan->sign_bit;
  const bool one_nan = plan->nan_flips == 0;
  const bool usual_power = policy.negative_input == NegativeInput::clamp &&
                           policy.zero_input == ZeroInput::smallest && !policy.tiny_rounds_up &&
                           !inf_special;
  // A sum with 3 * 2^22 steps has its steps in the low bits, for either sign.
  plan->integer_magic = 3.0F * f32_power_of_two(22 + format.min_step_exponent());
  *kind = EncodeKind::quick;
  if (powers) {
    *kind = usual_power ? EncodeKind::simple_e8m0 : EncodeKind::e8m0;
  } else if (format.twos_complement) {
    *kind = usual && one_nan ? EncodeKind::simple_integers : EncodeKind::integers;
  } else if (!sums) {
    *kind = EncodeKind::shifts;
  } else if (usual && plan->zero_sign != 0 && (nan_keeps_sign || one_nan)) {
    *kind = nan_keeps_sign ? EncodeKind::simple : EncodeKind::one_nan;
  } else if (usual && one_nan) {
    *kind = EncodeKind::one_zero;
  }
  return true;
}

bool decode_plan(const Format& format, DecodePlan* plan) {
  const bool powers = format == e8m0fnu;
  // An exponent of eight bits would collide with f32's Inf while its field is in place.
  if (!powers && (!fits_f32(format) || format.exponent_bits > 7 || format.bias < 0)) return false;
  const bool beyond = format.nan == Nan::ieee || format.nan == Nan::all_ones;
  *plan = {};
  plan->code_mask = format.code_mask();
  plan->magnitude_mask = format.magnitude_mask();
  plan->sign_mask = format.sign_mask();
  plan->sign_shift = 31u - static_cast<std::uint32_t>(format.magnitude_bits());
  plan->up_shift = 23u - format.mantissa_bits;
  plan->scale = static_cast<float>(format.twos_complement ? power_of_two(format.min_step_exponent())
                                                          : power_of_two(127 - format.bias));
  plan->special = beyond ? format.max_field() + 1 : ~0u;
  plan->inf_field = format.has_inf ? format.max_field() + 1 : ~0u;
  if (format.has_inf && !beyond) plan->special = plan->inf_field;
  plan->nan_code = format.nan == Nan::negative_zero ? format.sign_mask() : ~0u;
  const bool nan_is_zero = format.nan == Nan::negative_zero;
  plan->kind = powers                          ? DecodeKind::powers
               : format.twos_complement        ? DecodeKind::integers
               : format.has_inf && nan_is_zero ? DecodeKind::specials
               : format.has_inf                ? DecodeKind::ieee
               : nan_is_zero                   ? DecodeKind::fnuz
                                               : DecodeKind::plain;
  plan->exact16 = format.magnitude_bits() <= 8 && format.mantissa_bits <= 7;
  return true;
}

}  // namespace octavo::cuda
