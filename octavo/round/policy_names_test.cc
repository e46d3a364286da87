#include "octavo/round/policy_names.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"
#include "octavo/round/profile.h"

namespace octavo {
namespace {

template <typename Parse>
std::string error_of(Parse&& parse) {
  try {
    parse();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(PolicyNames, ComeBack) {
  EXPECT_EQ(rounding_names().size(), 7u);
  EXPECT_EQ(overflow_names().size(), 4u);
  EXPECT_EQ(nan_input_names().size(), 4u);
  EXPECT_EQ(profile_names().size(), 7u);
  for (const std::string& name : rounding_names()) EXPECT_EQ(name_of(parse_rounding(name)), name);
  for (const std::string& name : overflow_names()) EXPECT_EQ(name_of(parse_overflow(name)), name);
  for (const std::string& name : nan_input_names()) EXPECT_EQ(name_of(parse_nan_input(name)), name);
  for (const std::string& name : profile_names()) EXPECT_EQ(name_of(parse_profile(name)), name);
}

// A name must mean its own choice: the tables stand in the order of the enumerations.
TEST(PolicyNames, MeanTheirChoice) {
  EXPECT_EQ(parse_rounding("nearest_even"), Rounding::nearest_even);
  EXPECT_EQ(parse_rounding("nearest_away"), Rounding::nearest_away);
  EXPECT_EQ(parse_rounding("toward_zero"), Rounding::toward_zero);
  EXPECT_EQ(parse_rounding("up"), Rounding::up);
  EXPECT_EQ(parse_rounding("down"), Rounding::down);
  EXPECT_EQ(parse_rounding("to_odd"), Rounding::to_odd);
  EXPECT_EQ(parse_rounding("stochastic"), Rounding::stochastic);
  EXPECT_EQ(parse_overflow("saturate"), Overflow::saturate);
  EXPECT_EQ(parse_overflow("propagate"), Overflow::propagate);
  EXPECT_EQ(parse_overflow("saturate_finite"), Overflow::saturate_finite);
  EXPECT_EQ(parse_overflow("ieee"), Overflow::ieee);
  EXPECT_EQ(parse_nan_input("error"), NanInput::error);
  EXPECT_EQ(parse_nan_input("zero"), NanInput::zero);
  EXPECT_EQ(parse_nan_input("max"), NanInput::max);
  EXPECT_EQ(parse_nan_input("negated_zero"), NanInput::negated_zero);
  EXPECT_EQ(parse_profile("torch"), Profile::torch);
  EXPECT_EQ(parse_profile("torch_2_11"), Profile::torch_2_11);
  EXPECT_EQ(parse_profile("ml_dtypes"), Profile::ml_dtypes);
  EXPECT_EQ(parse_profile("cuda"), Profile::cuda);
  EXPECT_EQ(parse_profile("ocp_sat"), Profile::ocp_sat);
  EXPECT_EQ(parse_profile("ocp_nonsat"), Profile::ocp_nonsat);
  EXPECT_EQ(parse_profile("onnx"), Profile::onnx);
}

TEST(PolicyNames, UnknownOnesListTheKnown) {
  EXPECT_EQ(
      error_of([] { (void)parse_rounding("nearest"); }),
      "[rounding] got 'nearest'; expected one of nearest_even, nearest_away, toward_zero, up, "
      "down, to_odd, stochastic");
  EXPECT_EQ(error_of([] { (void)parse_overflow("wrap"); }),
            "[overflow] got 'wrap'; expected one of saturate, propagate, saturate_finite, ieee");
  EXPECT_EQ(error_of([] { (void)parse_nan_input(""); }),
            "[nan] got ''; expected one of error, zero, max, negated_zero");
  EXPECT_EQ(error_of([] { (void)parse_profile("jax"); }),
            "[profile] got 'jax'; expected one of torch, torch_2_11, ml_dtypes, cuda, ocp_sat, "
            "ocp_nonsat, onnx");
  EXPECT_LT(error_of([] { (void)parse_rounding(std::string(100000, 'x')); }).size(), 250u);
}

// The whole tables of the peers are in tests/conformance; here is what tells the profiles apart.
TEST(Profile, DifferWhereTheirPeersDo) {
  const auto code = [](Profile profile, const Format& format, double value) {
    return encode_value(format, value, profile_policy(profile, format)).code;
  };
  constexpr double kInf = __builtin_inf(), kNan = __builtin_nan("");
  EXPECT_EQ(code(Profile::torch, e4m3fn, 500), 0x7Eu);
  EXPECT_EQ(code(Profile::torch_2_11, e4m3fn, 500), 0x7Fu);
  EXPECT_EQ(code(Profile::ml_dtypes, e4m3fn, 500), 0x7Fu);
  EXPECT_EQ(code(Profile::cuda, e4m3fn, 500), 0x7Eu);
  EXPECT_EQ(code(Profile::ocp_sat, e5m2, kInf), 0x7Bu);
  EXPECT_EQ(code(Profile::ocp_nonsat, e5m2, kInf), 0x7Cu);
  EXPECT_EQ(code(Profile::torch, e5m2, kInf), 0x7Cu);
  EXPECT_EQ(code(Profile::onnx, e4m3fnuz, 1e9), 0x7Fu);
  EXPECT_EQ(code(Profile::onnx, e4m3fnuz, kInf), 0x80u);
  EXPECT_EQ(code(Profile::torch, e5m2, -kNan), 0xFFu);
  EXPECT_EQ(code(Profile::ml_dtypes, e5m2, -kNan), 0xFEu);
  EXPECT_EQ(code(Profile::cuda, e5m2, -kNan), 0x7Fu);
  EXPECT_EQ(code(Profile::cuda, e2m1fn, -kNan), 0x7u);
  EXPECT_EQ(code(Profile::ml_dtypes, e2m1fn, kNan), 0x8u);
  EXPECT_EQ(code(Profile::torch, e8m0fnu, 3), 129u);
  EXPECT_EQ(code(Profile::ocp_sat, e8m0fnu, 3), 128u);
  EXPECT_EQ(code(Profile::cuda, e8m0fnu, 1.01), 128u);
  EXPECT_EQ(profile_policy(Profile::ocp_sat, e2m1fn).nan_input, NanInput::error)
      << "MX leaves NaN open: refuse it";
}

// Every profile is usable for every format: a policy that convert would refuse is no policy.
TEST(Profile, CoverEveryNamedFormat) {
  for (const std::string& name : profile_names()) {
    for (const NamedFormat& named : kNamedFormats) {
      const EncodePolicy policy = profile_policy(parse_profile(name), named.format);
      EXPECT_NE(policy.rounding, Rounding::stochastic);
      EXPECT_EQ(decode(named.format, encode_value(named.format, 1.0, policy).code), 1.0)
          << name << " " << named.name;
    }
  }
}

}  // namespace
}  // namespace octavo
