#include "octavo/report/error_ranges.h"

#include <gtest/gtest.h>

#include <limits>

#include "octavo/base/error.h"
#include "octavo/report/gate.h"

namespace octavo {
namespace {

ErrorMetrics metrics(double sqnr, double cosine, std::int64_t not_finite = 0) {
  ErrorMetrics out;
  out.sqnr = sqnr;
  out.cosine = cosine;
  out.elements = 8;
  out.sums.count = 8 - not_finite;
  return out;
}

std::vector<MissedGate> missed(const ErrorRanges& ranges, const std::string& limit) {
  CheckpointReport report;
  report.was_complete = true;
  report.ranges = ranges;
  return missed_gates(report, {parse_gate(limit)});
}

TEST(ErrorRanges, JudgeALimitAsTheTensorsDid) {
  ErrorRanges ranges;
  ranges.add("a", metrics(20, 0.99));
  ranges.add("b", metrics(10, 0.999));
  ranges.add("c", metrics(15, 0.98));
  EXPECT_TRUE(missed(ranges, "sqnr<10").empty());
  EXPECT_TRUE(missed(ranges, "sqnr>20").empty());
  ASSERT_EQ(missed(ranges, "sqnr<=10").size(), 1U);
  EXPECT_EQ(missed(ranges, "sqnr<=10")[0].what, "sqnr of 'b' is 10");
  EXPECT_EQ(missed(ranges, "sqnr>19")[0].tensor, "a");
  EXPECT_EQ(missed(ranges, "cosine<0.985")[0].tensor, "c");
}

TEST(ErrorRanges, WhatIsNotFiniteMissesEveryLimit) {
  ErrorRanges ranges;
  ranges.add("a", metrics(20, 0.99));
  ranges.add("b", metrics(20, 0.99, 3));
  EXPECT_EQ(missed(ranges, "sqnr<1")[0].what,
            "3 values of 'b' are NaN or Inf, which no metric counts");
  ErrorRanges unknown;
  unknown.add("a", metrics(20, 0.99));
  unknown.add("b", metrics(std::numeric_limits<double>::quiet_NaN(), 0.99));
  unknown.add("c", metrics(30, 0.99));
  EXPECT_EQ(missed(unknown, "sqnr<1")[0].tensor, "b");
  EXPECT_EQ(missed(unknown, "sqnr>99")[0].tensor, "b");
  EXPECT_TRUE(missed(unknown, "cosine<0.9").empty());
}

TEST(ErrorRanges, WithoutThemACompleteFolderCannotBeJudged) {
  CheckpointReport report;
  report.was_complete = true;
  EXPECT_TRUE(missed_gates(report, {}).empty());
  EXPECT_THROW((void)missed_gates(report, {parse_gate("sqnr<1")}), Error);
}

}  // namespace
}  // namespace octavo
