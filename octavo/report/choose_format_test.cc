#include "octavo/report/choose_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "octavo/base/error_testing_internal.h"

namespace octavo {
namespace {

using error_testing::expect_refused;

Format chosen(std::vector<float>& values, const Scaling& scaling) {
  const View view =
      value_view(values.data(), DType::f32, {1, static_cast<std::int64_t>(values.size())});
  return choose_format(view, scaling, 1).format;
}

// E4M3 has the finer step for values of one binade, and reaches only 2^-18 below the largest; E5M2
// reaches 2^-32. With one scale for values all over 2^-30 to 1 the sum of squares is still that of
// the large ones, so that E5M2 wins only where the large values are exact in both formats, as 1.75
// is here.
TEST(ChooseFormat, TheOneWithTheSmallerError) {
  std::vector<float> near(256), far(256);
  for (std::size_t i = 0; i < near.size(); ++i) {
    near[i] = 1 + static_cast<float>(i) / 256;
    far[i] = std::ldexp(1.75F, -static_cast<int>(i % 29));
  }
  Scaling powers = preset("fp8");
  powers.scale.rule = ScaleRule::rceil;
  EXPECT_EQ(chosen(near, powers), e4m3fn);
  EXPECT_EQ(chosen(far, powers), e5m2);
}

TEST(ChooseFormat, OfEqualsTheFinerOne) {
  std::vector<float> zeros(64);
  EXPECT_EQ(chosen(zeros, preset("fp8:e5m2")), e4m3fn);
}

TEST(ChooseFormat, TheRestOfTheScalingStays) {
  std::vector<float> values(64, 1.0F);
  const View view = value_view(values.data(), DType::f32, {2, 32});
  Scaling scaling = preset("mxfp8");
  scaling.scale.rule = ScaleRule::floor;
  Scaling wanted = scaling;
  wanted.format = e4m3fn;
  EXPECT_EQ(choose_format(view, scaling), wanted);
}

TEST(ChooseFormat, SaysThatWeightedErrorsNeedWeights) {
  std::vector<float> values(64, 1.0F);
  Scaling scaling = preset("mxfp8");
  scaling.policy = AmaxPolicy::wmse;
  expect_refused(ErrorCode::invalid_argument, "choose with policy mse", [&] {
    (void)choose_format(value_view(values.data(), DType::f32, {2, 32}), scaling);
  });
}

}  // namespace
}  // namespace octavo
