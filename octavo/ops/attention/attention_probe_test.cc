#include "octavo/ops/attention/attention_probe_internal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace octavo {
namespace {

// Rows of errors with a modelled and a real standard deviation, and a bias common to all rows of
// one channel.
struct Probed {
  std::vector<std::vector<float>> exact, got;
  std::vector<ProbedRow> rows;

  Probed(std::size_t count, std::size_t width, double predicted, double real, double shared) {
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

TEST(AttentionProbe, ErrorsAsModelledChangeNothing) {
  const ProbeOutcome outcome = judge_probe(Probed(40, 64, 1e-3, 1e-3, 0.0).rows, {64.0, 64.0});
  EXPECT_EQ(outcome.times, 1.0);
  EXPECT_EQ(outcome.offset, 0.0);
  EXPECT_EQ(outcome.corrected(4e-3), 4e-3);
}

// Three times as large, which all rows together show, plus the uncertainty of 40 rows with one
// independent error each: 1 + 2 / sqrt(80) times that.
TEST(AttentionProbe, LargerErrorsAreSeen) {
  const ProbeOutcome outcome = judge_probe(Probed(40, 64, 1e-3, 3e-3, 0.0).rows, {64.0, 64.0});
  EXPECT_NEAR(outcome.times, 3.0 * (1.0 + 2.0 / std::sqrt(80.0)), 0.1);
}

// One error times what two kinds of token differ by: 4e-3 in the largest channel, a third of that
// in the others. No row has more than chance gives independent errors of 1e-3 (1.75 times in rms,
// 4.7 in the largest element); all together have more than 1 + 3 / sqrt(2 x 8 x 16) times.
TEST(AttentionProbe, OneErrorInAllChannelsIsSeenOverRows) {
  std::vector<float> kinds(64, 1.0F);
  kinds[5] = 3.0F;
  double squares = 0.0;
  for (const float number : kinds) squares += static_cast<double>(number * number);
  std::vector<std::vector<float>> got;
  const std::vector<float> exact(64, 0.0F);
  std::vector<ProbedRow> rows;
  for (int r = 0; r < 16; ++r) {
    got.emplace_back(64);
    for (std::size_t e = 0; e < 64; ++e)
      got.back()[e] = kinds[e] / 3.0F * 4e-3F * (r % 2 == 0 ? 0.5F : -0.6F);
  }
  for (const std::vector<float>& row : got)
    rows.push_back({.deviation = 1e-3, .exact = exact, .got = row});
  const double channels = squares / 9.0;
  const ProbeOutcome outcome = judge_probe(rows, {channels, channels});
  // The rms of 0.5 and 0.6, times the uncertainty of 16 rows.
  EXPECT_NEAR(outcome.times, 4.0 * std::sqrt((0.25 + 0.36) / 2.0) * (1.0 + 2.0 / std::sqrt(32.0)),
              1e-3);
}

// 5e-3 in one channel of 64, the same in all rows; 3.5e-3 / sqrt(40) may be chance.
TEST(AttentionProbe, WhatAllRowsShareIsAnOffset) {
  const ProbeOutcome outcome = judge_probe(Probed(40, 64, 1e-3, 1e-3, 5e-3).rows, {64.0, 64.0});
  EXPECT_NEAR(outcome.offset, 5e-3 - 3.5e-3 / std::sqrt(40.0), 3.5e-3 / std::sqrt(40.0));
}

TEST(AttentionProbe, NanIsNeverWithin) {
  Probed probed(4, 8, 1e-3, 1e-3, 0.0);
  probed.got[2][5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(judge_probe(probed.rows, {8.0, 8.0}).corrected(1e-9) <= 1.0);
}

TEST(AttentionProbe, OfNothing) {
  EXPECT_EQ(judge_probe({}, {8.0, 8.0}).corrected(0.5), 0.5);
  // No error where none was modelled.
  EXPECT_EQ(judge_probe(Probed(3, 8, 0.0, 0.0, 0.0).rows, {8.0, 8.0}).corrected(0.0), 0.0);
}

}  // namespace
}  // namespace octavo
