#include "octavo/backend/cuda/lane_plans.h"

#include <bit>

#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode_edges.h"

namespace octavo::cuda {

bool lane_encode(const Format& format, const EncodePolicy& policy, LaneEncode* plan,
                 LaneKind* kind) {
  const bool powers = format == e8m0fnu;
  if (!powers && !fits_f32(format)) return false;
  *kind = powers                                        ? LaneKind::e8m0
          : format.is_signed && !format.twos_complement ? LaneKind::plain
                                                        : LaneKind::other;
  const EncodeEdges edges = encode_edges(format, policy);
  *plan = {};
  for (const int negative : {0, 1}) {
    const auto at = static_cast<std::size_t>(negative);
    const double limit = grid_value(format, edges.overflow_field[at]);
    plan->limit[negative] = std::bit_cast<std::uint32_t>(static_cast<float>(limit));
    plan->inf_code[negative] = edges.inf_code[at];
    plan->nan_code[negative] = edges.nan_code[at];
  }
  const std::uint32_t nan = format.has_nan() ? format.magnitude_mask() : 0;
  plan->min_field = static_cast<std::uint32_t>(format.min_exponent() + 127);
  plan->shift = 23u - format.mantissa_bits;
  plan->mantissa_bits = format.mantissa_bits;
  plan->sign_shift = 31u - static_cast<std::uint32_t>(format.magnitude_bits());
  plan->zero_keeps_sign = format.has_negative_zero() ? 1 : 0;
  plan->code_mask = format.code_mask();
  plan->is_signed = format.is_signed ? 1 : 0;
  plan->negate = format.twos_complement ? 1 : 0;
  plan->negative_special =
      !format.is_signed && policy.negative_input != NegativeInput::magnitude ? 1 : 0;
  plan->negative_code = policy.negative_input == NegativeInput::nan ? nan : 0;
  plan->zero_code = policy.zero_input == ZeroInput::nan ? nan : 0;
  plan->tiny_rounds_up = policy.tiny_rounds_up ? 1 : 0;
  plan->stochastic_bits = static_cast<std::uint32_t>(policy.stochastic_bits);
  return true;
}

bool lane_decode(const Format& format, LaneDecode* plan) {
  const bool powers = format == e8m0fnu;
  // An exponent of eight bits would collide with f32's own Inf while its field is in place.
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
  plan->integer = format.twos_complement ? 1 : 0;
  plan->powers = powers ? 1 : 0;
  return true;
}

}  // namespace octavo::cuda
