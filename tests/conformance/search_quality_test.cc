// The search of policy mse for NVFP4 tries nine codes; how much worse are its weights than those of
// all 126? And what are the other policies worth? Errors are summed here, in f64, from what
// dequantize gives and from codes that this test rounds by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/octavo.h"

namespace octavo {
namespace {

constexpr std::int64_t kRows = 96, kCols = 512, kTile = 16;

using Draw = std::function<float(std::mt19937&)>;

Tensor drawn(const Draw& draw) {
  std::mt19937 random(41);
  Tensor out = Tensor::values({kRows, kCols}, DType::f32);
  for (float& x : out.span<float>()) x = draw(random);
  return out;
}

Draw distribution(const std::string& name) {
  if (name == "normal") return [](std::mt19937& r) { return std::normal_distribution<float>()(r); };
  if (name == "student")
    return [](std::mt19937& r) { return std::student_t_distribution<float>(5.0F)(r); };
  return [](std::mt19937& r) {
    const float sign = r() % 2 == 0 ? 1.0F : -1.0F;
    return sign * std::exponential_distribution<float>()(r);
  };
}

Scaling nvfp4_by(const char* policy) {
  Scaling scaling = preset("nvfp4");
  parse_amax_policy(policy, scaling);
  return scaling;
}

double error_of(const Tensor& values, const Scaling& scaling, std::span<const float> weights = {},
                std::span<const float> judged_by = {}) {
  const QuantizedTensor q = quantize(values.view(), scaling, {.column_weights = weights});
  const Tensor back = dequantize(q);
  double sum = 0;
  const auto x = values.span<float>(), y = back.span<float>();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double e = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    sum += e * e * (judged_by.empty() ? 1.0 : static_cast<double>(judged_by[i % kCols]));
  }
  return sum;
}

// E2M1's value nearest to a magnitude; at a tie either is as good.
double nearest(double u) {
  double best = 0;
  for (const double value : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0})
    if (std::fabs(u - value) < std::fabs(u - best)) best = value;
  return best;
}

// The least error with any code for each tile, under the tensor's scale that mse has.
double exhaustive_error(const Tensor& values) {
  const QuantizedTensor q = quantize(values.view(), nvfp4_by("mse"));
  const auto t = static_cast<double>(q.rowwise.tensor_scale.span<float>()[0]);
  const auto x = values.span<float>();
  double sum = 0;
  for (std::size_t start = 0; start < x.size(); start += kTile) {
    double least = HUGE_VAL;
    for (std::uint32_t code = 1; code <= 126; ++code) {
      const double scale = decode<e4m3fn>(code) * t;
      double error = 0;
      for (std::size_t i = start; i < start + kTile; ++i) {
        const double magnitude = std::fabs(static_cast<double>(x[i]));
        const double e = magnitude - nearest(magnitude / scale) * scale;
        error += e * e;
      }
      least = std::min(least, error);
    }
    sum += least;
  }
  return sum;
}

class SearchQuality : public ::testing::TestWithParam<const char*> {};

// Nine codes are within 1 % of all of them: of 6000 tiles hardly one has its best elsewhere.
TEST_P(SearchQuality, OfNineCodesIsWithinAPercentOfAll) {
  const Tensor values = drawn(distribution(GetParam()));
  const double nine = error_of(values, nvfp4_by("mse")), all = exhaustive_error(values);
  EXPECT_LE(nine, 1.01 * all);
  EXPECT_GE(nine, (1.0 - 1e-6) * all);  // else the exhaustive search is not one
}

// Two candidates lie between one and nine, and ModelOpt's sweep has all of them under a tensor
// scale without room, which costs little. The bounds are those of the tables in the literature,
// halved.
TEST_P(SearchQuality, MoreCandidatesHaveLessError) {
  const Tensor values = drawn(distribution(GetParam()));
  const double max = error_of(values, nvfp4_by("max")), two = error_of(values, nvfp4_by("4over6")),
               nine = error_of(values, nvfp4_by("mse")),
               all = error_of(values, nvfp4_by("modelopt_sweep"));
  EXPECT_LT(two, 0.95 * max);
  EXPECT_LT(nine, two);
  EXPECT_LT(nine, 0.90 * max);
  EXPECT_NEAR(all / nine, 1.0, 0.02);
}

INSTANTIATE_TEST_SUITE_P(Distributions, SearchQuality,
                         ::testing::Values("normal", "student", "laplace"),
                         [](const auto& of) { return std::string(of.param); });

// Judged by the weights, wmse is better than mse; by plain errors it is worse.
TEST(WeightedSearch, IsBetterByItsWeights) {
  const Tensor values = drawn(distribution("normal"));
  std::vector<float> weights;
  for (std::int64_t col = 0; col < kCols; ++col)
    weights.push_back(std::exp2(static_cast<float>(col * 37 % 13 - 6)));
  for (const char* name : {"nvfp4", "mxfp4", "fp8-1x128"}) {
    Scaling plain = preset(name), weighted = preset(name);
    parse_amax_policy("mse", plain);
    parse_amax_policy("wmse", weighted);
    EXPECT_LT(error_of(values, weighted, weights, weights), error_of(values, plain, {}, weights))
        << name;
    EXPECT_GE(error_of(values, weighted, weights), error_of(values, plain)) << name;
    const std::vector<float> ones(kCols, 1.0F);
    EXPECT_EQ(error_of(values, weighted, ones), error_of(values, plain)) << name;
  }
}

std::string message_of(const Scaling& scaling, std::span<const float> weights) {
  const Tensor values = drawn(distribution("normal"));
  try {
    (void)quantize(values.view(), scaling, {.column_weights = weights});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(WeightedSearch, RefusesWeightsThatAreMissingOrNoNumbers) {
  std::vector<float> weights(kCols, 1.0F);
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(message_of(nvfp4_by("wmse"), {}), "got 0 column_weights"));
  EXPECT_TRUE(has(message_of(nvfp4_by("mse"), weights), "they are for policy wmse"));
  weights[7] = std::nanf("");
  EXPECT_TRUE(has(message_of(nvfp4_by("wmse"), weights), "column_weights[7] is nan"));
  weights[7] = -1.0F;
  EXPECT_TRUE(has(message_of(nvfp4_by("wmse"), weights), "column_weights[7] is -1"));
  Scaling columnwise = nvfp4_by("wmse");
  columnwise.columnwise = true;
  EXPECT_THROW(check_scaling(columnwise), Error);
  Scaling of_fp8 = preset("fp8");
  EXPECT_THROW(
      {
        parse_amax_policy("4over6", of_fp8);
        check_scaling(of_fp8);
      },
      Error);
}

}  // namespace
}  // namespace octavo
