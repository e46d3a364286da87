#include "octavo/model/generate.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "octavo/base/error_testing_internal.h"

namespace octavo {
namespace {

using error_testing::expect_refused;

const std::vector<float> kLogits{0.0F, 2.0F, 1.0F, 2.0F, -1.0F};

TEST(Sample, GreedyTakesTheFirstOfTheLargest) { EXPECT_EQ(sample(kLogits, {}), 1); }

TEST(Sample, DrawsHaveTheProbabilitiesOfTheSoftmax) {
  constexpr int kDraws = 40000;
  std::array<int, 5> counts{};
  for (int step = 0; step < kDraws; ++step)
    ++counts[static_cast<std::size_t>(
        sample(kLogits, {.temperature = 0.5, .seed = 11}, static_cast<std::uint64_t>(step)))];
  double sum = 0.0;
  for (const float logit : kLogits) sum += std::exp(static_cast<double>(logit) / 0.5);
  for (std::size_t i = 0; i < 5; ++i) {
    const double p = std::exp(static_cast<double>(kLogits[i]) / 0.5) / sum;
    // Five standard deviations of a binomial count, and one draw.
    EXPECT_NEAR(counts[i], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p)) + 1) << i;
  }
}

std::set<std::int32_t> drawn(const Sampling& sampling) {
  std::set<std::int32_t> out;
  for (std::uint64_t step = 0; step < 2000; ++step) out.insert(sample(kLogits, sampling, step));
  return out;
}

TEST(Sample, TopKAndTopPLeaveTheMostLikely) {
  EXPECT_EQ(drawn({.temperature = 5.0, .top_k = 1}), (std::set<std::int32_t>{1}));
  EXPECT_EQ(drawn({.temperature = 5.0, .top_k = 3}), (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 5.0, .top_k = 99}).size(), 5U);
  // Probabilities at temperature 1: 0.39, 0.39, 0.14, 0.05, 0.02.
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.3}), (std::set<std::int32_t>{1}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.5}), (std::set<std::int32_t>{1, 3}));
  EXPECT_EQ(drawn({.temperature = 1.0, .top_p = 0.9}), (std::set<std::int32_t>{1, 2, 3}));
}

TEST(Sample, DependsOnSeedAndStepAlone) {
  std::vector<std::int32_t> first, again, other;
  for (std::uint64_t step = 0; step < 50; ++step) {
    first.push_back(sample(kLogits, {.temperature = 2.0, .seed = 1}, step));
    again.push_back(sample(kLogits, {.temperature = 2.0, .seed = 1}, step));
    other.push_back(sample(kLogits, {.temperature = 2.0, .seed = 2}, step));
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

TEST(Sample, NonFiniteLogits) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  const std::vector<float> some{nan, 1.0F, nan}, all{nan, nan}, infinite{0.0F, inf};
  EXPECT_EQ(sample(some, {}), 1);
  EXPECT_EQ(sample(some, {.temperature = 1.0}), 1);
  EXPECT_EQ(sample(infinite, {.temperature = 1.0}), 1);
  expect_refused(ErrorCode::invalid_argument, "all logits are NaN", [&] { (void)sample(all, {}); });
}

TEST(Sample, RefusesWhatMakesNoSense) {
  expect_refused(ErrorCode::invalid_argument, "a temperature of -1",
                 [] { (void)sample(kLogits, {.temperature = -1.0}); });
  expect_refused(ErrorCode::invalid_argument, "top_k -2",
                 [] { (void)sample(kLogits, {.top_k = -2}); });
  expect_refused(ErrorCode::invalid_argument, "top_p 0",
                 [] { (void)sample(kLogits, {.top_p = 0.0}); });
}

}  // namespace
}  // namespace octavo
