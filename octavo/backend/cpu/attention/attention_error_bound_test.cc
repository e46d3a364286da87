#include "octavo/backend/cpu/attention/attention_error_bound.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace octavo::cpu {
namespace {

// Weights that add up to one.
RowWeights row_of(const std::vector<double>& weights, double score = 1.0) {
  RowWeights row{.largest = 0.0, .weight_squares = 0.0, .score = score};
  for (const double weight : weights) {
    row.largest = std::max(row.largest, weight);
    row.weight_squares += weight * weight;
  }
  return row;
}

// sum_j p_j^2 (1 - 2 p_j + Q), exactly.
double moved(const std::vector<double>& weights) {
  const double squares = row_of(weights).weight_squares;
  double sum = 0.0;
  for (const double weight : weights) sum += weight * weight * (1.0 - 2.0 * weight + squares);
  return sum;
}

TEST(AttentionErrorBound, BoundsWhatErrorsOfScoresDo) {
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> power(0.0, 12.0);
  for (int turn = 0; turn < 20000; ++turn) {
    std::vector<double> weights(static_cast<std::size_t>(2 + turn % 7));
    double sum = 0.0;
    for (double& weight : weights) sum += weight = std::exp2(-power(random));
    for (double& weight : weights) weight /= sum;
    const double exact = moved(weights) - 1e-15;  // less the cancellation error of the terms
    RowWeights row = row_of(weights);
    EXPECT_GE(moved_by_scores(row), exact) << row.largest << ", " << row.weight_squares;
    row.weight_squares = HUGE_VAL;  // unknown
    EXPECT_GE(moved_by_scores(row), exact) << row.largest;
  }
  // The bounds are attained by two keys and by any number of equal ones.
  EXPECT_NEAR(moved_by_scores(row_of({0.7, 0.3})), moved({0.7, 0.3}), 1e-12);
  const std::vector<double> equal(10, 0.1);
  EXPECT_NEAR(moved_by_scores(row_of(equal)), moved(equal), 1e-12);
}

TEST(AttentionErrorBound, IsAboutKeysThatShareTheWeight) {
  const auto is = [](const RowWeights& row) {
    return exceeds_error_bound(row, RowErrors{.aligned = kAlignedSigma});
  };
  EXPECT_TRUE(is(row_of({0.5, 0.5}, 4.0)));
  EXPECT_TRUE(is(row_of({0.4, 0.3, 0.3}, 4.0)));
  EXPECT_TRUE(is(row_of(std::vector<double>(30, 1.0 / 30), 12.0)));
  EXPECT_FALSE(is(row_of({0.5, 0.5}, 1.0)));
  EXPECT_FALSE(is(row_of({0.999, 0.001}, 24.0)));  // one key has it all
  // Normal scores of 512 keys: the largest of them is about 3.
  EXPECT_FALSE(is({.largest = 0.03, .weight_squares = 0.006, .score = 3.5}));
  const double nan = std::nan("");
  EXPECT_FALSE(is({.largest = nan, .weight_squares = nan, .score = nan}));
  EXPECT_FALSE(is({.largest = nan, .weight_squares = 0.5, .score = HUGE_VAL}));
}

TEST(AttentionErrorBound, IsAboutFewKeysWhereEveryScoreOrWeightIsOff) {
  const auto equal = [](std::size_t keys) {
    return row_of(std::vector<double>(keys, 1.0 / static_cast<double>(keys)), 0.0);
  };
  const RowErrors scores{.random_walk = 1.7e-3}, weights{.weights = 0x1p-9};
  for (const RowErrors& errors : {scores, weights}) {
    EXPECT_FALSE(exceeds_error_bound(equal(1), errors));
    for (const std::size_t keys : {2U, 3U, 5U})
      EXPECT_TRUE(exceeds_error_bound(equal(keys), errors));
    EXPECT_FALSE(exceeds_error_bound(equal(8), errors));
  }
  EXPECT_FALSE(exceeds_error_bound(equal(2), RowErrors{}));
}

}  // namespace
}  // namespace octavo::cpu
