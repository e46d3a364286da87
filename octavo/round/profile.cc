// Every policy here was read off the peer itself: tests/conformance holds its casts of all bf16,
// f16 and f32 inputs (torch, torch 2.11, ml_dtypes and CUDA by running them, ONNX from its
// specification). A format that a peer lacks follows those of its kind that the peer has.
#include "octavo/round/profile.h"

#include <array>

#include "octavo/base/error.h"

namespace octavo {
namespace {

// In the order of the enumeration.
constexpr std::array<std::string_view, 7> kNames{"torch",   "torch_2_11", "ml_dtypes", "cuda",
                                                 "ocp_sat", "ocp_nonsat", "onnx"};

// A power of two has no mantissa bit to be even: torch and ml_dtypes send every tie up.
Rounding nearest_of_significands(const Format& format) {
  return format.has_zero ? Rounding::nearest_even : Rounding::nearest_away;
}

EncodePolicy torch_policy(const Format& format, bool e4m3fn_saturates) {
  EncodePolicy policy;
  policy.rounding = nearest_of_significands(format);
  const bool saturates = format.is_signed && format.nan == Nan::all_ones && e4m3fn_saturates;
  policy.overflow = saturates ? Overflow::saturate : Overflow::ieee;
  policy.negative_input = NegativeInput::magnitude;
  policy.tiny_rounds_up = !format.has_zero;
  policy.via_f32 = true;
  return policy;
}

EncodePolicy ml_dtypes_policy(const Format& format) {
  EncodePolicy policy;
  policy.rounding = nearest_of_significands(format);
  policy.overflow = Overflow::ieee;
  policy.nan_input = NanInput::negated_zero;
  policy.nan_code = NanCode::signed_quiet;
  policy.negative_input = NegativeInput::nan;
  policy.zero_input = ZeroInput::nan;
  policy.tiny_rounds_up = !format.has_zero;
  policy.via_f32 = true;
  return policy;
}

// The constructors: f64 is rounded once, and scales (formats without zero) never fall below the
// value.
EncodePolicy cuda_policy(const Format& format) {
  EncodePolicy policy;
  policy.rounding = format.has_zero ? Rounding::nearest_even : Rounding::up;
  policy.nan_input = NanInput::max;
  policy.nan_code = NanCode::positive_ones;
  policy.negative_input = NegativeInput::magnitude;
  return policy;
}

// The tables of Cast-25. What they leave unspecified (negative values to e8m0) is as in CUDA, which
// they cite.
EncodePolicy onnx_policy(const Format& format) {
  EncodePolicy policy;
  policy.rounding = format.has_zero ? Rounding::nearest_even : Rounding::up;
  policy.overflow =
      format.nan == Nan::negative_zero ? Overflow::saturate_finite : Overflow::saturate;
  policy.nan_input = NanInput::max;
  policy.negative_input = NegativeInput::magnitude;
  policy.via_f32 = true;
  return policy;
}

EncodePolicy ocp_policy(Overflow overflow) {
  EncodePolicy policy;
  policy.overflow = overflow;
  return policy;
}

}  // namespace

EncodePolicy profile_policy(Profile profile, const Format& format) {
  switch (profile) {
    case Profile::torch:
      return torch_policy(format, true);
    case Profile::torch_2_11:
      return torch_policy(format, false);
    case Profile::ml_dtypes:
      return ml_dtypes_policy(format);
    case Profile::cuda:
      return cuda_policy(format);
    case Profile::ocp_sat:
      return ocp_policy(Overflow::saturate);
    case Profile::ocp_nonsat:
      return ocp_policy(Overflow::ieee);
    case Profile::onnx:
      return onnx_policy(format);
  }
  fail(ErrorCode::internal, "profile", "got ", static_cast<int>(profile), ", which is no profile");
}

std::string_view name_of(Profile profile) { return kNames[static_cast<std::size_t>(profile)]; }

Profile parse_profile(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Profile>(i);
    known += text(i ? ", " : "", kNames[i]);
  }
  fail(ErrorCode::invalid_argument, "profile", "got '", shown(name), "'; expected one of ", known);
}

std::vector<std::string> profile_names() { return {kNames.begin(), kNames.end()}; }

}  // namespace octavo
