#include "octavo/backend/cuda/lane_plans.h"

#include <bit>
#include <limits>

#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"
#include "octavo/round/encode_edges.h"
#include "octavo/scale/scale_parts.h"

namespace octavo::cuda {

bool lane_encode(const Format& format, const EncodePolicy& policy, LaneEncode* plan,
                 LaneKind* kind) {
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
  plan->min_binade = plan->min_field << 23;
  plan->magic = plan->shift << 23;
  plan->first_field = plan->min_field << format.mantissa_bits;
  plan->inf_beyond = inf_special ? kMaxFloat : std::numeric_limits<float>::infinity();
  plan->signed_top = format.is_signed ? 0x80000000u : 0u;
  const bool refused = !format.is_signed && policy.negative_input != NegativeInput::magnitude;
  plan->negative_beyond = refused ? 0x80000000u : 0xFFFFFFFFu;
  plan->negative_code = policy.negative_input == NegativeInput::nan ? nan : 0;
  plan->zero_code = policy.zero_input == ZeroInput::nan ? nan : 0;
  plan->tiny_below = policy.tiny_rounds_up ? 0x800000u : 0u;
  // The sum that rounds has to be finite, ties go to the even step and fields without mantissa are
  // not even when their step is, and a draw needs its bits below a step.
  const bool finite =
      (plan->limit[0] >> 23) + plan->shift < 255 && (plan->limit[1] >> 23) + plan->shift < 255;
  const bool has_room = policy.rounding != Rounding::stochastic ||
                        format.mantissa_bits + policy.stochastic_bits <= 22;
  const bool sums = format.is_signed && format.mantissa_bits >= 1 && finite && has_room;
  if (format.twos_complement && !sums) return false;
  *kind = powers                   ? LaneKind::e8m0
          : format.twos_complement ? LaneKind::integers
          : sums                   ? LaneKind::quick
                                   : LaneKind::shifts;
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
  plan->kind = powers                                               ? DecodeKind::powers
               : format.twos_complement                             ? DecodeKind::integers
               : format.has_inf || format.nan == Nan::negative_zero ? DecodeKind::specials
                                                                    : DecodeKind::plain;
  plan->exact16 = format.magnitude_bits() <= 8 && format.mantissa_bits <= 7;
  return true;
}

}  // namespace octavo::cuda
