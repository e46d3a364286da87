// Which scalings, layouts and floating-point environments gptq() takes.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "octavo/base/error_testing_internal.h"
#include "octavo/base/fp_env.h"
#include "octavo/model/gptq/gptq.h"
#include "octavo/model/gptq/gptq_testing_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo::gptq_detail {
namespace {

using error_testing::expect_refused;
using testing::as_tensor;
using testing::correlated_rows;
using testing::moments;
using testing::normal_values;

constexpr std::int64_t kRows = 24, kWidth = 256, kTokens = 400;

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  if (tensor.owner() == nullptr) return {};
  return {tensor.bytes().begin(), tensor.bytes().end()};
}

class GptqScaling : public ::testing::Test {
 protected:
  Tensor weight = normal_values(kRows, kWidth, 21);
  Tensor hessian = as_tensor(moments(correlated_rows(kTokens, kWidth, 22)));
};

TEST_F(GptqScaling, WhatHasNoRowwiseCodesInOrderIsRefusedByName) {
  const auto refuse = [&](const std::string& words, const Scaling& scaling) {
    expect_refused(ErrorCode::unsupported, words,
                   [&] { (void)gptq(weight.view(), hessian.view(), scaling); });
  };
  Scaling scaling = preset("mxfp8");
  scaling.columnwise = true;
  refuse("got a columnwise copy", scaling);
  scaling.rowwise = false;
  refuse("got a scaling without a rowwise copy", scaling);
  scaling = preset("fp8-1x128");
  scaling.scale_order = ScaleOrder::col_major;
  refuse("got scales in col_major order", scaling);
  scaling = preset("mxfp8");
  scaling.axis = 0;
  refuse("got scales along axis 0", scaling);
}

// The same numbers, a column after the other in memory.
TEST_F(GptqScaling, WeightsMayBeColumnMajor) {
  const Tensor turned = Tensor::values({kWidth, kRows}, DType::f32);
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t col = 0; col < kWidth; ++col)
      turned.span<float>()[static_cast<std::size_t>(col * kRows + row)] =
          weight.span<float>()[static_cast<std::size_t>(row * kWidth + col)];
  View view = turned.view();
  view.shape = {kRows, kWidth};
  view.strides = {4, 4 * kRows};
  for (const char* const name : {"nvfp4", "fp8-block"}) {
    const GptqResult one = gptq(weight.view(), hessian.view(), preset(name)),
                     other = gptq(view, hessian.view(), preset(name));
    EXPECT_EQ(bytes_of(one.codes.rowwise.codes), bytes_of(other.codes.rowwise.codes)) << name;
    EXPECT_EQ(bytes_of(one.codes.rowwise.scales), bytes_of(other.codes.rowwise.scales)) << name;
    EXPECT_EQ(one.error, other.error);
  }
}

TEST_F(GptqScaling, PolicyWmseTakesColumnWeights) {
  Scaling scaling = preset("nvfp4");
  parse_amax_policy("wmse", scaling);
  std::vector<float> weights;
  for (std::int64_t i = 0; i < kWidth; ++i)
    weights.push_back(i % 5 == 0 ? 100.0F : 0.01F * static_cast<float>(i % 7));
  const GptqResult made = gptq(weight.view(), hessian.view(), scaling, {.column_weights = weights});
  const QuantizedTensor rounded = quantize(weight.view(), scaling, {.column_weights = weights});
  EXPECT_EQ(bytes_of(made.codes.rowwise.scales), bytes_of(rounded.rowwise.scales));
  expect_refused(ErrorCode::invalid_argument, "got 0 column_weights for policy wmse",
                 [&] { (void)gptq(weight.view(), hessian.view(), scaling); });
}

TEST_F(GptqScaling, TheCallersFloatingPointEnvironmentDoesNotMatter) {
  const auto made = [&] {
    return gptq(weight.view(), hessian.view(), preset("nvfp4"), {.threads = 1});
  };
  const GptqResult wanted = made();
  const auto expect_same = [&](const GptqResult& got, const char* how) {
    EXPECT_EQ(bytes_of(got.codes.rowwise.codes), bytes_of(wanted.codes.rowwise.codes)) << how;
    EXPECT_EQ(bytes_of(got.codes.rowwise.scales), bytes_of(wanted.codes.rowwise.scales)) << how;
    EXPECT_EQ(got.error, wanted.error) << how;
    EXPECT_EQ(got.rounded_error, wanted.rounded_error) << how;
  };
  for (const FpRounding rounding : {FpRounding::up, FpRounding::down, FpRounding::zero}) {
    GptqResult got;
    {
      const FpEnvGuard caller(rounding);
      got = made();
    }
    expect_same(got, "another rounding direction");
  }
#if defined(__x86_64__)
  // Errors that are subnormal: flushed to zero they would count for nothing.
  for (float& number : weight.span<float>()) number *= 0x1p-120F;
  const GptqResult tiny = made();
  constexpr unsigned kFlushAndZero = 0x8040;
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushAndZero);
  const GptqResult flushed = made();
  _mm_setcsr(before);
  EXPECT_EQ(bytes_of(flushed.codes.rowwise.codes), bytes_of(tiny.codes.rowwise.codes));
  EXPECT_EQ(flushed.error, tiny.error);
#endif
}

}  // namespace
}  // namespace octavo::gptq_detail
