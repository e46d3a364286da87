#include "octavo/model/gptq/gptq.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "octavo/base/error_testing_internal.h"
#include "octavo/convert/convert.h"
#include "octavo/model/gptq/cholesky_internal.h"
#include "octavo/model/gptq/gptq_testing_internal.h"
#include "octavo/model/gptq/hessian_sum_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo::gptq_detail {
namespace {

using error_testing::message_of;
using testing::as_tensor;
using testing::correlated_rows;
using testing::Matrix64;
using testing::moments;
using testing::normal_values;

// More than one block of columns, and whole groups of 16 and of 32.
constexpr std::int64_t kRows = 20, kWidth = 160, kTokens = 400;

const std::vector<std::string>& presets() {
  static const std::vector<std::string> names{"nvfp4",       "mxfp4",        "mxfp8", "fp8-block",
                                              "fp8-channel", "int8-channel", "int4"};
  return names;
}

std::vector<std::byte> all_bytes(const QuantizedTensor& of) {
  std::vector<std::byte> out;
  for (const Tensor* part : {&of.rowwise.codes, &of.rowwise.scales, &of.rowwise.tensor_scale})
    if (part->owner() != nullptr) {
      const auto bytes = part->bytes();
      out.insert(out.end(), bytes.begin(), bytes.end());
    }
  return out;
}

// The values of every code under the scale of an element, by dequantizing tensors of one code.
struct Grid {
  explicit Grid(const QuantizedTensor& like) {
    QuantizedTensor one = like;
    one.rowwise.codes =
        Tensor::codes(like.shape, like.scaling.format, like.rowwise.codes.view().packed);
    const std::uint32_t codes = 1U << like.scaling.format.bits();
    for (std::uint32_t code = 0; code < codes; ++code) {
      const float value = decoded(like.scaling.format, code);
      if (!std::isfinite(value)) continue;
      const Tensor filled = Tensor::values(like.shape, DType::f32);
      std::ranges::fill(filled.span<float>(), value);
      encode(filled.view(), one.rowwise.codes.view());
      values.push_back(dequantize(one));
    }
    width = static_cast<std::size_t>(like.shape[1]);
  }
  static float decoded(const Format& format, std::uint32_t code) {
    std::uint8_t byte = static_cast<std::uint8_t>(code);
    float value = 0;
    decode(code_view(&byte, format, {1}), value_view(&value, DType::f32, {1}));
    return value;
  }
  [[nodiscard]] double nearest(std::size_t row, std::size_t col, double number) const {
    double best = 0, least = HUGE_VAL;
    for (const Tensor& of_code : values) {
      const auto value = static_cast<double>(of_code.span<float>()[row * width + col]);
      if (std::fabs(value - number) >= least) continue;
      least = std::fabs(value - number);
      best = value;
    }
    return best;
  }
  std::vector<Tensor> values;
  std::size_t width = 0;
};

// The library's sums are f32, off by less than 160 * 2^-24 of numbers that are below a few steps of
// the grid: some 1e-5 steps. One of these 3200 numbers would have to lie so near to the middle of
// two values, which for these seeds none does: codes are the same, and if one were not, those of
// the rest of its row would differ, too.
TEST(Gptq, IsTheTextbooksColumnByColumn) {
  const Tensor weight = normal_values(kRows, kWidth, 1);
  const Matrix64 h = moments(correlated_rows(kTokens, kWidth, 2));
  std::vector<std::size_t> order(h.size());
  for (const ColumnOrder columns : {ColumnOrder::natural, ColumnOrder::activation}) {
    std::iota(order.begin(), order.end(), 0);
    if (columns == ColumnOrder::activation)
      std::ranges::stable_sort(order, [&](auto a, auto b) { return h[a][a] > h[b][b]; });
    for (const std::string& name : presets()) {
      const Scaling scaling = preset(name);
      const GptqResult made =
          gptq(weight.view(), as_tensor(h).view(), scaling, {.damping = 0.01, .order = columns});
      const Grid grid(quantize(weight.view(), scaling));
      const Matrix64 wanted = testing::textbook_gptq(
          weight, h, 0.01, order, [&](std::size_t row, std::size_t col, double number) {
            return grid.nearest(row, col, number);
          });
      const Tensor values = dequantize(made.codes);
      std::int64_t different = 0;
      for (std::size_t i = 0; i < values.span<float>().size(); ++i)
        different +=
            static_cast<double>(values.span<float>()[i]) != wanted[i / h.size()][i % h.size()];
      EXPECT_EQ(different, 0) << name << ", columns " << name_of(columns);
    }
  }
}

TEST(Gptq, IsRoundingToNearestWhereChannelsAreIndependent) {
  const Tensor weight = normal_values(kRows, kWidth, 3);
  Matrix64 h(kWidth, std::vector<double>(kWidth));
  for (std::size_t i = 0; i < h.size(); ++i) h[i][i] = 1.0;
  for (const std::string& name : presets()) {
    const GptqResult made = gptq(weight.view(), as_tensor(h).view(), preset(name));
    EXPECT_EQ(all_bytes(made.codes), all_bytes(quantize(weight.view(), preset(name)))) << name;
    // dequantize() may round once where scale and code are multiplied one by one.
    EXPECT_NEAR(made.error, made.rounded_error, 1e-5 * made.error) << name;
  }
}

TEST(Gptq, ErrsLessThanRoundingAndSaysByHowMuch) {
  const Tensor weight = normal_values(kRows, kWidth, 4);
  const Matrix64 h = moments(correlated_rows(kTokens, kWidth, 5));
  for (const std::string& name : presets()) {
    const GptqResult made = gptq(weight.view(), as_tensor(h).view(), preset(name));
    const QuantizedTensor rounded = quantize(weight.view(), preset(name));
    const double error = testing::relative_error(weight, dequantize(made.codes), h);
    const double by_rounding = testing::relative_error(weight, dequantize(rounded), h);
    EXPECT_LT(error, 0.8 * by_rounding) << name;
    // Sums of 160 products of f32 in r_j, whose squares are added in f64.
    EXPECT_NEAR(made.error, error, 1e-4 * error) << name;
    EXPECT_NEAR(made.rounded_error, by_rounding, 1e-4 * by_rounding) << name;
    EXPECT_EQ(
        std::memcmp(made.codes.rowwise.scales.bytes().data(), rounded.rowwise.scales.bytes().data(),
                    rounded.rowwise.scales.bytes().size()),
        0)
        << name << ": scales are those of the weight";
  }
}

TEST(Gptq, TakesWeightsOfBf16AndSharedTensorScales) {
  const Tensor wide = normal_values(kRows, kWidth, 6);
  const Tensor weight = Tensor::values(wide.shape(), DType::bf16);
  for (std::size_t i = 0; i < wide.span<float>().size(); ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &wide.span<float>()[i], 4);
    weight.span<std::uint16_t>()[i] = static_cast<std::uint16_t>(bits >> 16);
  }
  const Matrix64 h = moments(correlated_rows(kTokens, kWidth, 7));
  const float amax = 1.0F;
  const GptqResult made =
      gptq(weight.view(), as_tensor(h).view(), preset("nvfp4"), {.given_amax = &amax});
  EXPECT_EQ(made.codes.source, DType::bf16);
  EXPECT_EQ(made.codes.rowwise.tensor_scale.span<float>()[0],
            quantize(weight.view(), preset("nvfp4"), {.given_amax = &amax})
                .rowwise.tensor_scale.span<float>()[0]);
}

TEST(Gptq, ChannelsThatNothingEntersAreRounded) {
  const Tensor weight = normal_values(kRows, kWidth, 8);
  const Tensor x = correlated_rows(kTokens, kWidth, 9);
  for (std::int64_t row = 0; row < kTokens; ++row)
    x.span<float>()[static_cast<std::size_t>(row * kWidth + 5)] = 0.0F;
  const Tensor values =
      dequantize(gptq(weight.view(), as_tensor(moments(x)).view(), preset("fp8-channel")).codes);
  const Tensor rounded = dequantize(quantize(weight.view(), preset("fp8-channel")));
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto at = static_cast<std::size_t>(row * kWidth + 5);
    EXPECT_EQ(values.span<float>()[at], rounded.span<float>()[at]);
  }
  // Nothing at all: damping has nothing to be a part of.
  const Matrix64 none(kWidth, std::vector<double>(kWidth));
  EXPECT_EQ(all_bytes(gptq(weight.view(), as_tensor(none).view(), preset("nvfp4")).codes),
            all_bytes(quantize(weight.view(), preset("nvfp4"))));
}

TEST(Gptq, BadHessiansAreErrors) {
  const Tensor weight = normal_values(4, 32, 10);
  const Matrix64 good = moments(correlated_rows(100, 32, 11));
  const auto refusal = [&](const Matrix64& h, double damping) {
    return message_of([&] {
      (void)gptq(weight.view(), as_tensor(h).view(), preset("mxfp4"), {.damping = damping});
    });
  };
  Matrix64 bad = good;
  bad[9][3] = bad[3][9] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(refusal(bad, 0.05).find("nan at (9, 3); expected finite numbers"), std::string::npos)
      << refusal(bad, 0.05);
  bad = good;
  bad[7][7] = -1.0;
  EXPECT_NE(refusal(bad, 0.05).find("has -1 on its diagonal, at 7"), std::string::npos);
  // Five tokens cannot fill 32 channels.
  bad = moments(correlated_rows(5, 32, 12));
  EXPECT_NE(refusal(bad, 0.0).find("singular"), std::string::npos) << refusal(bad, 0.0);
  EXPECT_EQ(refusal(bad, 0.05), "");
  EXPECT_NE(refusal(good, -1.0).find("damping"), std::string::npos);
  EXPECT_NE(refusal(moments(correlated_rows(50, 16, 13)), 0.05).find("expected [N, 16]"),
            std::string::npos);
}

TEST(Gptq, WeightsThatAreNotFiniteAndOtherRoundingsAreErrors) {
  const Tensor weight = normal_values(4, 32, 14);
  const Tensor h = as_tensor(moments(correlated_rows(100, 32, 15)));
  Scaling scaling = preset("mxfp4");
  scaling.encode.rounding = Rounding::stochastic;
  EXPECT_NE(message_of([&] { (void)gptq(weight.view(), h.view(), scaling); }).find("stochastic"),
            std::string::npos);
  weight.span<float>()[40] = std::numeric_limits<float>::infinity();
  EXPECT_NE(
      message_of([&] { (void)gptq(weight.view(), h.view(), preset("mxfp4")); }).find("NaN or Inf"),
      std::string::npos);
}

TEST(HessianSum, IsTheMeanOfProducts) {
  constexpr std::int64_t kMany = 1200, kChannels = 300;  // several runs, several panels
  const Tensor x = correlated_rows(kMany, kChannels, 16);
  HessianSum sum(kChannels);
  const View all = x.view();
  sum.add(value_view(all.data, DType::f32, {1050, kChannels}), 2);
  sum.add(value_view(x.span<float>().data() + 1050 * kChannels, DType::f32, {150, kChannels}), 1);
  EXPECT_EQ(sum.rows(), kMany);
  const std::vector<double> seen = sum.take();
  const Matrix64 wanted = moments(x);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    for (std::size_t j = 0; j <= i; ++j)
      // The header's bound, by Cauchy and Schwarz.
      EXPECT_NEAR(seen[i * wanted.size() + j], wanted[i][j],
                  1026 * 0x1p-24 * std::sqrt(wanted[i][i] * wanted[j][j]));
}

TEST(Cholesky, IsTheFactorOfLargeMatrices) {
  constexpr std::size_t kSize = 400;  // blocks that are not whole
  const Matrix64 h = moments(correlated_rows(500, kSize, 17));
  std::vector<double> matrix;
  for (const auto& row : h) matrix.insert(matrix.end(), row.begin(), row.end());
  std::vector<double> by_one = matrix;
  ASSERT_TRUE(cholesky(matrix, kSize, 3));
  ASSERT_TRUE(cholesky(by_one, kSize, 1));
  const Matrix64 u = testing::upper_factor(h);
  double largest = 0;
  for (std::size_t i = 0; i < kSize; ++i) largest = std::max(largest, u[i][i]);
  for (std::size_t i = 0; i < kSize; ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      // Both are off by some n 2^-53 times the condition number, here below 1e5.
      EXPECT_NEAR(matrix[i * kSize + j], u[j][i], 1e-8 * largest);
      ASSERT_EQ(matrix[i * kSize + j], by_one[i * kSize + j]) << "threads";
    }
  matrix.assign(kSize * kSize, 1.0);  // of rank one
  EXPECT_FALSE(cholesky(matrix, kSize, 2));
}

}  // namespace
}  // namespace octavo::gptq_detail
