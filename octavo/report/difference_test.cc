#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/fp_env.h"
#include "octavo/report/metrics.h"

namespace octavo {
namespace {

View of(std::vector<float>& values, const Shape& shape) {
  return value_view(values.data(), DType::f32, shape);
}

TEST(Difference, OfTwoArraysIsWhatItIs) {
  std::vector<float> x{1, 2, -3, 4}, y{1, 2.5F, -3, 3};
  const ErrorMetrics found = measure_error(of(x, {4}), of(y, {4}));
  EXPECT_EQ(found.elements, 4);
  EXPECT_DOUBLE_EQ(found.mse, (0.25 + 1) / 4);
  EXPECT_DOUBLE_EQ(found.relative_l2, std::sqrt(1.25 / 30));
  EXPECT_DOUBLE_EQ(found.sqnr, 10 * std::log10(30 / 1.25));
  EXPECT_EQ(found.max_abs, 1);
  EXPECT_EQ(found.max_relative, 0.25);
  const double product = 1 + 5 + 9 + 12, y2 = 1 + 6.25 + 9 + 9;
  EXPECT_NEAR(found.cosine, product / std::sqrt(30 * y2), 1e-15);
}

TEST(Difference, TypesAndStridesMayDiffer) {
  // The transpose of a matrix of doubles, and bf16: 1, 2, 3, 4 are exact in all.
  std::vector<double> x{1, 3, 2, 4};
  View transposed = value_view(x.data(), DType::f64, {2, 2});
  transposed.strides = {8, 16};
  std::vector<std::uint16_t> y{0x3F80, 0x4000, 0x4040, 0x4080};
  const View narrow = value_view(y.data(), DType::bf16, {2, 2});
  EXPECT_EQ(measure_error(transposed, narrow).mse, 0);
  y[3] = 0x40A0;  // 5
  EXPECT_EQ(measure_error(transposed, narrow).mse, 0.25);
  EXPECT_EQ(measure_error(transposed, narrow).bits_per_value, 16);
}

TEST(Difference, SquaresOfDoublesNeitherOverflowNorVanish) {
  for (const double unit : {0x1p700, 0x1p-700, 0x1p-1070}) {
    std::vector<double> x{3 * unit, 4 * unit}, y{3 * unit, 2 * unit};
    const ErrorMetrics found =
        measure_error(value_view(x.data(), DType::f64, {2}), value_view(y.data(), DType::f64, {2}));
    EXPECT_DOUBLE_EQ(found.relative_l2, 2.0 / 5);
    EXPECT_DOUBLE_EQ(found.sqnr, 10 * std::log10(25.0 / 4));
    EXPECT_NEAR(found.cosine, 17 / (5 * std::sqrt(13)), 1e-15);
    EXPECT_EQ(found.max_abs, 2 * unit);
    EXPECT_EQ(found.amax, 4 * unit);
    EXPECT_EQ(found.flushed, 0);
  }
  // What is small beside the others is not flushed.
  std::vector<double> x{0x1p1000, 0x1p-1074}, y = x;
  EXPECT_EQ(
      measure_error(value_view(x.data(), DType::f64, {2}), value_view(y.data(), DType::f64, {2}))
          .flushed,
      0);
}

TEST(Difference, TheCallersRoundingDoesNotMatter) {
  std::vector<float> x(1000), y(1000);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = 0.1F * static_cast<float>(i % 37);
    y[i] = 0.1F * static_cast<float>(i % 41);
  }
  const ErrorMetrics wanted = measure_error(of(x, {1000}), of(y, {1000}));
  const FpEnvGuard caller(FpRounding::up);
  EXPECT_EQ(measure_error(of(x, {1000}), of(y, {1000})), wanted);
}

TEST(Difference, WhatIsNotFiniteIsCountedAndNotSummed) {
  const float nan = std::nanf(""), inf = INFINITY;
  std::vector<float> x{nan, inf, 1, 2}, y{1, 2, inf, 2};
  const ErrorMetrics found = measure_error(of(x, {4}), of(y, {4}));
  EXPECT_EQ(found.sums.count, 1);
  EXPECT_EQ(found.mse, 0);
  EXPECT_EQ(found.input, (NonFiniteCounts{1, 1}));
  EXPECT_EQ(found.result, (NonFiniteCounts{0, 1}));
}

TEST(Difference, NothingOrAScalarIsFine) {
  std::vector<float> x{3}, y{2};
  EXPECT_EQ(measure_error(of(x, {}), of(y, {})).max_abs, 1);
  EXPECT_EQ(measure_error(of(x, {0, 3}), of(y, {0, 3})).elements, 0);
}

TEST(Difference, OfMoreThanAPieceIsOfAll) {
  std::vector<float> x(50'000, 1), y(50'000, 1);
  y.back() = 3;
  const ErrorMetrics found = measure_error(of(x, {50'000}), of(y, {50'000}));
  EXPECT_EQ(found.elements, 50'000);
  EXPECT_DOUBLE_EQ(found.mse, 4.0 / 50'000);
}

TEST(Difference, OtherShapesAndCodesAreRefused) {
  std::vector<float> x(6), y(6);
  EXPECT_THROW((void)measure_error(of(x, {2, 3}), of(y, {3, 2})), Error);
  std::vector<std::uint8_t> codes(6);
  EXPECT_THROW((void)measure_error(of(x, {6}), code_view(codes.data(), e4m3fn, {6})), Error);
}

}  // namespace
}  // namespace octavo
