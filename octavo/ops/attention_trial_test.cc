#include "octavo/ops/attention_trial_internal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace octavo {
namespace {

// Rows of errors with these deviations, and something that all rows of a channel share.
struct Tried {
  std::vector<std::vector<float>> exact, got;
  std::vector<TriedRow> rows;

  Tried(std::size_t count, std::size_t width, double predicted, double real, double shared) {
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    for (std::size_t r = 0; r < count; ++r) {
      exact.emplace_back(width, 1.0F);
      got.emplace_back(width, 1.0F);
      for (std::size_t e = 0; e < width; ++e)
        got[r][e] += static_cast<float>(real * normal(random) + (e == 3 ? shared : 0.0));
    }
    for (std::size_t r = 0; r < count; ++r)
      rows.push_back({.deviation = predicted, .exact = exact[r], .got = got[r]});
  }
};

TEST(AttentionTrial, ErrorsAsPredictedChangeNothing) {
  const TrialOutcome outcome = judge_trial(Tried(40, 64, 1e-3, 1e-3, 0.0).rows, 64.0);
  EXPECT_EQ(outcome.times, 1.0);
  EXPECT_EQ(outcome.offset, 0.0);
  EXPECT_EQ(outcome.corrected(4e-3), 4e-3);
}

// Three times as large: a row's rms is within 3 / sqrt(128) of it, which is also what is let pass.
TEST(AttentionTrial, LargerErrorsAreSeen) {
  const TrialOutcome outcome = judge_trial(Tried(40, 64, 1e-3, 3e-3, 0.0).rows, 64.0);
  EXPECT_GE(outcome.times, 2.2);
  EXPECT_LE(outcome.times, 3.5);
}

// 5e-3 in one channel of 64, the same in all rows; 3.5e-3 / sqrt(40) may be chance.
TEST(AttentionTrial, WhatAllRowsShareIsAnOffset) {
  const TrialOutcome outcome = judge_trial(Tried(40, 64, 1e-3, 1e-3, 5e-3).rows, 64.0);
  EXPECT_NEAR(outcome.offset, 5e-3 - 3.5e-3 / std::sqrt(40.0), 3.5e-3 / std::sqrt(40.0));
}

TEST(AttentionTrial, NanIsNeverWithin) {
  Tried tried(4, 8, 1e-3, 1e-3, 0.0);
  tried.got[2][5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(judge_trial(tried.rows, 8.0).corrected(1e-9) <= 1.0);
}

TEST(AttentionTrial, OfNothing) {
  EXPECT_EQ(judge_trial({}, 8.0).corrected(0.5), 0.5);
  // No error at all, where none was predicted.
  EXPECT_EQ(judge_trial(Tried(3, 8, 0.0, 0.0, 0.0).rows, 8.0).corrected(0.0), 0.0);
}

}  // namespace
}  // namespace octavo
