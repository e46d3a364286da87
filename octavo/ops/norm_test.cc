#include "octavo/ops/norm.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <limits>
#include <string>

#include "octavo/base/error.h"
#include "octavo/base/error_testing_internal.h"
#include "octavo/format/named_formats.h"
#include "octavo/quant/scaling.h"

namespace octavo {
namespace {

using error_testing::message_of;

class NormTest : public ::testing::Test {
 protected:
  Tensor x_ = Tensor::values({2, 3, 4}, DType::f32);
  Tensor vector_ = Tensor::values({4}, DType::f32);
  Tensor longer_ = Tensor::values({5}, DType::f32);
  Tensor codes_ = Tensor::codes({4}, e4m3fn);

  void SetUp() override {
    std::ranges::fill(x_.span<float>(), 1.0F);
    std::ranges::fill(vector_.span<float>(), 2.0F);
    std::ranges::fill(longer_.span<float>(), 2.0F);
  }
};

TEST_F(NormTest, NumbersThatCanBeDoneByHand) {
  const float row[] = {1, 2, 3, 6};  // mean 3, variance 3.5, mean of squares 12.5
  std::ranges::copy(row, x_.span<float>().begin());
  Tensor mean = Tensor::values({2, 3}, DType::f32), inv_std = Tensor::values({6}, DType::f32);
  const Tensor y = layer_norm(x_.view(), {.weight = vector_.view(),
                                          .bias = vector_.view(),
                                          .epsilon = 0.5,
                                          .mean = mean.view(),
                                          .inv_std = inv_std.view()});
  EXPECT_EQ(y.shape(), x_.shape());
  EXPECT_EQ(mean.span<float>()[0], 3.0F);
  EXPECT_EQ(inv_std.span<float>()[0], 0.5F);
  const float wanted[] = {0, 1, 2, 5, 2, 2, 2, 2};  // the second row is all the same: the bias
  for (std::size_t i = 0; i < std::size(wanted); ++i) EXPECT_EQ(y.span<float>()[i], wanted[i]);

  const Tensor r =
      rms_norm(x_.view(), {.weight = vector_.view(), .epsilon = 3.5, .zero_centred = true});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(r.span<float>()[i], row[i] * 0.75F);
}

TEST_F(NormTest, TypesOfResults) {
  EXPECT_EQ(layer_norm(x_.view()).dtype(), DType::f32);
  const Tensor half = Tensor::values({3, 8}, DType::bf16),
               wide = Tensor::values({3, 8}, DType::f64);
  std::ranges::fill(half.bytes(), std::byte{0});
  std::ranges::fill(wide.bytes(), std::byte{0});
  EXPECT_EQ(rms_norm(half.view()).dtype(), DType::bf16);
  EXPECT_EQ(rms_norm(wide.view()).dtype(), DType::f32);
  EXPECT_EQ(rms_norm(wide.view(), {}, {.out = DType::f16}).dtype(), DType::f16);
}

TEST_F(NormTest, WhatDoesNotFitIsNamed) {
  const auto of_layer_norm = [&](const LayerNorm& norm) {
    return message_of([&] { (void)layer_norm(x_.view(), norm); });
  };
  EXPECT_EQ(of_layer_norm({.weight = longer_.view()}),
            "[layer_norm] the weight has shape [5]; expected [4], as long as the last dimension of "
            "the input");
  EXPECT_EQ(
      of_layer_norm({.bias = x_.view()}),
      "[layer_norm] the bias has shape [2, 3, 4]; expected [4], as long as the last dimension "
      "of the input");
  EXPECT_EQ(of_layer_norm({.weight = codes_.view()}),
            "[layer_norm] the weight holds codes; expected float64, float32, float16 or bfloat16");
  EXPECT_EQ(of_layer_norm({.epsilon = -1.0}),
            "[layer_norm] got epsilon = -1; expected a finite number that is not negative");
  EXPECT_NE(of_layer_norm({.epsilon = std::numeric_limits<double>::quiet_NaN()}), "");
  EXPECT_EQ(of_layer_norm({.mean = vector_.view()}),
            "[layer_norm] mean has shape [4]; expected 6 elements, one for each row of the input");
  EXPECT_EQ(message_of([&] { (void)rms_norm(x_.view(), {.epsilon = -0.5}); }),
            "[rms_norm] got epsilon = -0.5; expected a finite number that is not negative");
  EXPECT_EQ(message_of([&] { (void)rms_norm(codes_.view()); }),
            "[rms_norm] the input holds codes; expected float64, float32, float16 or bfloat16; "
            "dequantize it first");
  EXPECT_EQ(
      message_of([&] { (void)rms_norm(Tensor::values({}, DType::f32).view()); }),
      "[rms_norm] the input is a single number; expected at least one dimension to norm along");
  const Tensor empty = Tensor::values({3, 0}, DType::f32), three = Tensor::values({3}, DType::f32);
  EXPECT_EQ(message_of([&] { (void)rms_norm(empty.view(), {.inv_rms = three.view()}); }),
            "[rms_norm] rows of no elements ([3, 0]) have no inv_rms");
}

TEST_F(NormTest, OutputsThatDoNotFitAreNamed) {
  const Produced values = produced(x_.view(), LayerNorm{});
  EXPECT_EQ(
      message_of([&] { (void)produce(values, {.out = DType::f64}); }),
      "[produce] the output is float64; expected float32, float16 or bfloat16: what is produced "
      "is rounded to float32 first");
  EXPECT_EQ(message_of([&] { produce_into(values, x_.view()); }),
            "[produce] the output overlaps the input; rows are read more than once: give other "
            "memory");
  EXPECT_EQ(message_of([&] { produce_into(values, vector_.view()); }),
            "[produce] the output has shape [4]; expected [2, 3, 4]");
  QuantizedTensor other = make_quantized({4}, DType::f32, preset("mxfp8"));
  EXPECT_EQ(message_of([&] { quantize_into(values, other); }),
            "[quantize] what is produced has shape [2, 3, 4] and the result is for [4]");
}

}  // namespace
}  // namespace octavo
