// Numbers worked out by hand, conventions, the transpose, and what is refused.
#include <gtest/gtest.h>

#include <array>

#include "octavo/report/metrics.h"
#include "octavo/report/metrics_testing_internal.h"

namespace octavo {
namespace {

Tensor row_of(std::initializer_list<float> values) {
  Tensor out = Tensor::values({1, static_cast<std::int64_t>(values.size())}, DType::f32);
  std::copy(values.begin(), values.end(), out.span<float>().begin());
  return out;
}

// FP4 has 0, 0.5, 1, 1.5, 2, 3, 4, 6; the scale is 1.
TEST(MetricsByHand, SmallRow) {
  const Tensor x = row_of({6, -2.5F, 0.2F, 0, 1, 4});
  const QuantizedTensor q = quantize(x.view(), preset("mxfp4"));
  const ErrorMetrics got = measure_error(x.view(), q, {.tiles = true, .histograms = true});
  // -2.5 is a tie and goes to the even -2; 0.2 becomes zero.
  const auto small = static_cast<double>(0.2F);
  EXPECT_DOUBLE_EQ(got.sums.error2, 0.25 + small * small);
  EXPECT_DOUBLE_EQ(got.mse, got.sums.error2 / 6);
  EXPECT_NEAR(got.sums.value2, 36 + 6.25 + 0.04 + 1 + 16, 1e-7);
  EXPECT_NEAR(got.relative_l2, std::sqrt(0.29 / 59.29), 1e-8);
  EXPECT_NEAR(got.sqnr, 10 * std::log10(59.29 / 0.29), 1e-6);
  EXPECT_NEAR(got.cosine, (36 + 5 + 1 + 16) / std::sqrt(59.29 * (36 + 4 + 1 + 16)), 1e-8);
  EXPECT_EQ(got.max_abs, 0.5);
  EXPECT_EQ(got.max_relative, 1);
  EXPECT_EQ(got.amax, 6);
  EXPECT_EQ(got.flushed, 1);
  EXPECT_DOUBLE_EQ(got.flushed_share, 1.0 / 6);
  EXPECT_EQ(got.saturated, 0);
  EXPECT_EQ(got.scales, (ScaleRange{.count = 1, .least = 1, .most = 1}));
  EXPECT_DOUBLE_EQ(got.bits_per_value, 8.0 * (3 + 1) / 6);
  EXPECT_EQ(got.values.first_exponent, -3);  // 0.125 <= 0.2 < 0.25
  EXPECT_EQ(got.values.counts, (std::vector<std::int64_t>{1, 0, 0, 1, 1, 2}));
  EXPECT_EQ(got.values.zeros, 1);
  std::vector<std::int64_t> codes(16);
  codes[0] = 2, codes[2] = 1, codes[6] = 1, codes[7] = 1, codes[12] = 1;
  EXPECT_EQ(got.codes, codes);
}

// Squares of these are no f64; what is lost is all the same.
TEST(MetricsByHand, HugeAndTinyValues) {
  for (const double size : {1e300, 1e-200, 5e-324}) {
    Tensor x = Tensor::values({2, 3}, DType::f64);
    const std::array<double, 6> values{size, -size, size, 0, size, size};
    std::copy(values.begin(), values.end(), x.span<double>().begin());
    // One scale, so that the largest f32 is what 1e300 comes back as; the small ones become zero.
    const ErrorMetrics got =
        measure_error(x.view(), quantize(x.view(), preset("fp8")), {.rows = true, .tiles = true});
    EXPECT_NEAR(got.relative_l2, 1, 1e-15) << size;
    EXPECT_NEAR(got.sqnr, 0, 1e-12) << size;
    EXPECT_NEAR(got.cosine, size > 1 ? 1 : 0, 1e-15) << size;
    EXPECT_NEAR(got.rows[1].relative_l2(), 1, 1e-15) << size;
    EXPECT_EQ(got.max_abs, size);
    EXPECT_EQ(got.mse, size > 1 ? HUGE_VAL : 0.0);
  }
}

// Of f32 the largest and the smallest are no trouble. What is rounded up beyond it does not count.
TEST(MetricsByHand, EndsOfF32) {
  const Tensor large = row_of({3.4e38F, 3.3e38F, 1});
  const ErrorMetrics lost = measure_error(large.view(), quantize(large.view(), preset("mxfp8")));
  EXPECT_EQ(lost.result.inf, 2);
  EXPECT_EQ(lost.sums.count, 1);
  EXPECT_EQ(lost.amax, static_cast<double>(3.4e38F));
  EXPECT_EQ(lost.relative_l2, 1);  // the one became zero
  const ErrorMetrics kept = measure_error(large.view(), quantize(large.view(), preset("fp8")));
  EXPECT_EQ(kept.result.inf, 0);
  EXPECT_GT(kept.sqnr, 30);
  const Tensor small = row_of({0x1p-149F, 0x1p-149F});
  EXPECT_EQ(measure_error(small.view(), quantize(small.view(), preset("mxfp8"))).relative_l2, 1);
}

// With the floor rule 7.5 stays at scale 1: beyond 6 by more than half of the last step of 2.
TEST(MetricsByHand, Saturation) {
  Scaling scaling = preset("mxfp4");
  scaling.scale.rule = ScaleRule::floor;
  const Tensor x = row_of({7.5F, -7.0F, 6.9F, 1});
  const ErrorMetrics got = measure_error(x.view(), quantize(x.view(), scaling));
  EXPECT_EQ(got.saturated, 1);
  EXPECT_EQ(got.saturated_share, 0.25);
  EXPECT_EQ(got.max_abs, 1.5);
}

TEST(MetricsByHand, BothEndsOfTwosComplement) {
  // mxint8 reaches from -2 to 127/64: with scale 1 the one is exact and the other beyond.
  Scaling scaling = preset("mxint8");
  scaling.scale.rule = ScaleRule::floor;
  scaling.scale.margin = -1;
  const Tensor x = row_of({-2, 2, 1});
  const ErrorMetrics got = measure_error(x.view(), quantize(x.view(), scaling));
  EXPECT_EQ(got.saturated, 1);
  EXPECT_EQ(got.max_abs, 1.0 / 64);
}

TEST(MetricsByHand, ZerosAreExact) {
  const Tensor x = row_of({0, -0.0F, 0});
  for (const std::string& name : preset_names()) {
    const ErrorMetrics got =
        measure_error(x.view(), quantize(x.view(), preset(name)), {.tiles = true});
    EXPECT_EQ(got.mse, 0) << name;
    EXPECT_EQ(got.relative_l2, 0) << name;
    EXPECT_EQ(got.cosine, 1) << name;
    EXPECT_EQ(got.flushed, 0) << name;
    EXPECT_TRUE(std::isinf(got.sqnr) && got.sqnr > 0) << name;
    EXPECT_TRUE(std::isinf(got.effective_bits)) << name;
  }
}

TEST(MetricsByHand, EverythingLost) {
  // A scale 2^40 too large: all becomes zero, which is nothing like the values.
  Scaling scaling = preset("fp8");
  scaling.scale.margin = 40;
  const Tensor x = row_of({1, -2, 3});
  const ErrorMetrics got = measure_error(x.view(), quantize(x.view(), scaling));
  EXPECT_EQ(got.flushed_share, 1);
  EXPECT_EQ(got.cosine, 0);
  EXPECT_EQ(got.relative_l2, 1);
  EXPECT_EQ(got.sqnr, 0);
}

TEST(MetricsByHand, PoisonIsCountedAndLeftOut) {
  Tensor x = Tensor::values({1, 64}, DType::f32);
  std::fill(x.span<float>().begin(), x.span<float>().end(), 1.0F);
  x.span<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  x.span<float>()[4] = 1000.0F;
  x.span<float>()[40] = 1.01F;
  const ErrorMetrics got =
      measure_error(x.view(), quantize(x.view(), preset("mxfp8")), {.rows = true, .tiles = true});
  EXPECT_EQ(got.input, (NonFiniteCounts{1, 0}));
  EXPECT_EQ(got.result, (NonFiniteCounts{32, 0}));
  EXPECT_EQ(got.sums.count, 32);
  EXPECT_EQ(got.amax, 1000);  // a finite value, though its tile is lost
  EXPECT_EQ(got.scales.nan, 1);
  EXPECT_EQ(got.scales.count, 2);
  EXPECT_EQ(got.tiles[0], ErrorSums{});
  EXPECT_EQ(got.tiles[1], got.sums);
  EXPECT_EQ(got.rows[0], got.sums);
  EXPECT_GT(got.mse, 0);
}

TEST(MetricsByHand, ScalesOfTwoLevelsAreMultiplied) {
  const Tensor x = testing::sample_values({4, 64}, DType::f32, true);
  const QuantizedTensor q = quantize(x.view(), preset("nvfp4"));
  double least = HUGE_VAL, most = 0;
  for (std::int64_t i = 0; i < 16; ++i) {
    const double scale = testing::value_at(q.rowwise.scales.view(), i) *
                         testing::value_at(q.rowwise.tensor_scale.view(), 0);
    least = std::fmin(least, scale);
    most = std::fmax(most, scale);
  }
  const ScaleRange got = measure_error(x.view(), q).scales;
  EXPECT_EQ(got, (ScaleRange{.count = 16, .least = least, .most = most}));
  EXPECT_DOUBLE_EQ(measure_error(x.view(), q).bits_per_value, 4.5 + 32.0 / 256);
}

// The columnwise copy is the quantization of the transpose.
TEST(MetricsOfTheTranspose, EqualThoseOfItsOwnQuantization) {
  const Tensor x = testing::sample_values({48, 80}, DType::f32, true);
  Tensor t = Tensor::values({80, 48}, DType::f32);
  for (int r = 0; r < 48; ++r)
    for (int c = 0; c < 80; ++c) t.span<float>()[c * 48 + r] = x.span<float>()[r * 80 + c];
  for (const char* name : {"mxfp8", "fp8-block", "fp8", "nvfp4", "mxfp6"}) {
    Scaling both = preset(name);
    both.columnwise = true;
    const MetricOptions all{.rows = true, .tiles = true, .histograms = true};
    MetricOptions columns = all;
    columns.columnwise = true;
    const ErrorMetrics wanted = measure_error(t.view(), quantize(t.view(), preset(name)), all);
    EXPECT_TRUE(measure_error(x.view(), quantize(x.view(), both), columns) == wanted) << name;
    both.rowwise = false;
    EXPECT_TRUE(measure_error(x.view(), quantize(x.view(), both), all) == wanted) << name;
  }
}

// The error is that of the values, although other values were encoded.
TEST(MetricsOfHadamard, AreOfTheValues) {
  const Tensor x = testing::sample_values({9, 70}, DType::f32, true);
  Scaling scaling = preset("nvfp4");
  scaling.hadamard = {.rowwise = true, .columnwise = false, .signs = 0xA53C};
  const QuantizedTensor q = quantize(x.view(), scaling);
  const testing::Expected wanted = testing::expected_metrics(x.view(), q);
  const ErrorMetrics got = measure_error(x.view(), q, {.tiles = true});
  EXPECT_NEAR(got.sums.error2, static_cast<double>(wanted.error2),
              1e-12 * static_cast<double>(wanted.error2));
  EXPECT_EQ(got.max_abs, wanted.max_abs);
}

TEST(MetricsRefuse, WhatDoesNotFit) {
  const Tensor x = testing::sample_values({4, 8}, DType::f32),
               other = testing::sample_values({8, 4}, DType::f32);
  const QuantizedTensor q = quantize(x.view(), preset("fp8"));
  EXPECT_THROW((void)measure_error(other.view(), q), Error);
  EXPECT_THROW((void)measure_error(q.rowwise.codes.view(), q), Error);
  EXPECT_THROW((void)measure_error(x.view(), q, {.columnwise = true}), Error);
  EXPECT_THROW((void)measure_error(x.view(), q, {.threads = -1}), Error);
  QuantizedTensor nothing;
  nothing.shape = {4, 8};
  EXPECT_THROW((void)measure_error(x.view(), nothing), Error);
}

}  // namespace
}  // namespace octavo
