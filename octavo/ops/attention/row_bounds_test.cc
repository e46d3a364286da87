// row_bounds, of numbers alone: how its terms add up, and when it says nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/ops/attention/attention_bound_internal.h"

namespace octavo {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                 kNaN = std::numeric_limits<double>::quiet_NaN();

// A row of a hundred keys.
struct Row {
  BoundTerms terms{.softmax_scale = 0.125,
                   .head_size = 64.0,
                   .deviations = deviations_for(64.0),
                   .kernels = {.unit = 0x1p-24,
                               .scores = 72.0 * 0x1p-24,
                               .weights = 0x1p-8,
                               .lost = 0x1p-125,
                               .sums = 108.0 * 0x1p-24}};
  QueryNorms q{.length = 8.0, .error = 0.01};
  KeyNorms k{.longest = 9.0, .error = 0.01, .spread_squares = 1.0, .error_squares = 1e-6};
  ValueNorms v{.rows = 100.0,
               .range = 6.0,
               .largest = 3.0,
               .center = 0.1,
               .mean = 0.05,
               .squares = 100.0,
               .fourth_powers = 300.0,
               .error = 0.01,
               .error_squares = 1e-3};
  RowWeights weights{.keys = 100.0, .least = 0.1, .largest = 0.1, .squares = 0.03};
  double bias = 0.0;

  [[nodiscard]] RowBounds bounds() const { return row_bounds(terms, q, k, v, weights, bias); }
};

TEST(RowBounds, NothingIsSaidWhereANumberIsNotFinite) {
  EXPECT_LT(Row().bounds().certified, 1.0);
  const auto is_unknown = [](auto edit) {
    Row row;
    edit(row);
    const RowBounds bounds = row.bounds();
    return bounds.certified == kInfinity && bounds.probabilistic == kInfinity &&
           bounds.log_sum_exp == kInfinity;
  };
  for (const double number : {kNaN, kInfinity}) {
    EXPECT_TRUE(is_unknown([=](Row& row) { row.q.length = number; }));
    EXPECT_TRUE(is_unknown([=](Row& row) { row.q.error = number; }));
    EXPECT_TRUE(is_unknown([=](Row& row) { row.k.longest = number; }));
    EXPECT_TRUE(is_unknown([=](Row& row) { row.k.error = number; }));
    EXPECT_TRUE(is_unknown([=](Row& row) { row.v.range = number; }));
    EXPECT_TRUE(is_unknown([=](Row& row) { row.v.largest = number; }));
    EXPECT_TRUE(is_unknown([=](Row& row) { row.v.squares = number; }));
    EXPECT_TRUE(is_unknown([=](Row& row) { row.v.error = number; }));
    EXPECT_TRUE(is_unknown([=](Row& row) { row.bias = number; }));
    EXPECT_TRUE(is_unknown([=](Row& row) { row.weights.largest = number; }));
    EXPECT_TRUE(is_unknown([=](Row& row) { row.weights.least = number; }));
    EXPECT_TRUE(is_unknown([=](Row& row) { row.weights.squares = number; }));
  }
  EXPECT_TRUE(is_unknown([](Row& row) { row.v.error_squares = kNaN; }));
  EXPECT_TRUE(is_unknown([](Row& row) { row.v.fourth_powers = kNaN; }));
  // Sums of so many keys that 2 sigma is no bound of a quotient of two.
  EXPECT_TRUE(is_unknown([](Row& row) { row.terms.kernels.sums = 0.5; }));
}

// A sum that is off by s, over one that is off by s, is off by 2 s / (1 - s) of the magnitudes: all
// values are one here, and no score is off.
TEST(RowBounds, AQuotientOfTwoSumsIsOffByMoreThanTwice) {
  for (const double sums : {0x1p-20, 0x1p-10, 0x1p-4, 0x1p-3}) {
    Row row;
    row.terms.kernels = {.unit = 0x1p-53, .sums = sums};
    row.q.error = row.k.error = row.v.error = row.v.error_squares = 0.0;
    row.v = {.rows = 100.0, .range = 0.0, .largest = 1.0, .center = 1.0, .mean = 1.0};
    EXPECT_GE(row.bounds().certified, (1.0 + sums) / (1.0 - sums) - 1.0);
    EXPECT_LE(row.bounds().certified, 2.0 * sums / (1.0 - 2.0 * sums) * 1.001 + 0x1p-23);
  }
}

// What assumes independence is of the probabilistic bound alone.
TEST(RowBounds, NothingCertifiedAssumesIndependence) {
  const double certified = Row().bounds().certified;
  const auto certified_with = [](auto edit) {
    Row row;
    edit(row);
    return row.bounds().certified;
  };
  EXPECT_EQ(certified_with([](Row& row) { row.k.spread_squares = 1e-9; }), certified);
  EXPECT_EQ(certified_with([](Row& row) { row.k.error_squares = 0.0; }), certified);
  EXPECT_EQ(certified_with([](Row& row) { row.v.rows = 1e6; }), certified);
  EXPECT_EQ(certified_with([](Row& row) { row.v.mean = 0.0; }), certified);
  EXPECT_EQ(certified_with([](Row& row) { row.terms.deviations = 0.0; }), certified);
}

}  // namespace
}  // namespace octavo
