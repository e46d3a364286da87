#include "octavo/report/gate.h"

#include <gtest/gtest.h>

#include <limits>

#include "octavo/base/error.h"

namespace octavo {
namespace {

TensorReport tensor(const char* name, double cosine, std::int64_t counted = 4) {
  TensorReport out;
  out.name = name;
  out.measured = true;
  out.metrics.elements = 4;
  out.metrics.sums.count = counted;
  out.metrics.cosine = cosine;
  out.metrics.sqnr = 100 * cosine;
  return out;
}

TEST(Gate, WhatIsTyped) {
  const Gate gate = parse_gate(" cosine <= 0.5 ");
  EXPECT_TRUE(gate.is_violated_by(tensor("a", 0.5).metrics) &&
              !gate.is_violated_by(tensor("a", 0.6).metrics));
  EXPECT_TRUE(gate.is_violated_by(tensor("a", std::numeric_limits<double>::quiet_NaN()).metrics));
  EXPECT_EQ(gate_metric_typed(" cosin <1"), "cosin");
  for (const char* const wrong :
       {"", "<", "cosine", "cosine<", "cosine<x", "cosine<1x", "cosine<inf", "cosin<1", "<1"}) {
    try {
      (void)parse_gate(wrong);
      FAIL() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  }
}

TEST(Gate, TheWorstThatMissesIsNamed) {
  CheckpointReport report;
  report.tensors = {tensor("good", 0.99), tensor("bad", 0.2), tensor("worse", 0.1)};
  const auto missed = missed_gates(report, {parse_gate("cosine<0.5"), parse_gate("cosine<0.01")});
  ASSERT_EQ(missed.size(), 1U);
  EXPECT_EQ(missed[0].what, "cosine of 'worse' is 0.1, and of 1 other");
  EXPECT_EQ(missed[0].typed, "cosine<0.5");
  EXPECT_EQ(missed[0].tensors, 2U);
}

// A value that is NaN or Inf is in no metric: nothing has been shown to be good.
TEST(Gate, WhatIsNotCountedMissesEveryLimit) {
  CheckpointReport report;
  report.tensors = {tensor("good", 0.99), tensor("holed", 0.99, 3)};
  const auto missed = missed_gates(report, {parse_gate("cosine<0.5")});
  ASSERT_EQ(missed.size(), 1U);
  EXPECT_EQ(missed[0].what, "1 value of 'holed' is NaN or Inf, which no metric counts");
  report.tensors[1].same_non_finite = 1;
  EXPECT_TRUE(missed_gates(report, {parse_gate("cosine<0.5")}).empty());
}

TEST(Gate, WhatWasNotComparedMissesEveryLimit) {
  CheckpointReport report;
  report.tensors = {tensor("good", 0.99)};
  report.not_compared = {"gone"};
  const auto missed = missed_gates(report, {parse_gate("cosine<0.5")});
  ASSERT_EQ(missed.size(), 1U);
  EXPECT_EQ(missed[0].what, "'gone' was not compared");
  report.not_compared = {"gone", "went"};
  report.tensors.push_back(tensor("bad", 0.2));
  const auto both = missed_gates(report, {parse_gate("cosine<0.5")});
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].what, "'gone' and 1 other were not compared");
  EXPECT_EQ(both[1].what, "cosine of 'bad' is 0.2");
  EXPECT_TRUE(missed_gates(report, {}).empty());
}

}  // namespace
}  // namespace octavo
