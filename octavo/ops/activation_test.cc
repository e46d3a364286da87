#include "octavo/ops/activation.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <string>

#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"
#include "octavo/quant/scaling.h"

namespace octavo {
namespace {

Tensor numbers(const Shape& shape, std::initializer_list<float> values) {
  Tensor tensor = Tensor::values(shape, DType::f32);
  std::ranges::copy(values, tensor.span<float>().begin());
  return tensor;
}

std::vector<float> list_of(const Tensor& tensor) {
  return {tensor.span<float>().begin(), tensor.span<float>().end()};
}

// The activation is of the first half, in every row.
TEST(ActivationTest, WhichHalfIsActivated) {
  const Tensor x = numbers({2, 4}, {0, 100, -3, 2, 100, -0.0F, 5, 7});
  // 100 is so large that gelu and silu are the identity.
  EXPECT_EQ(list_of(swiglu(x.view())), (std::vector<float>{-0.0F, 200, 500, -0.0F}));
  EXPECT_EQ(list_of(geglu(x.view())), (std::vector<float>{-0.0F, 200, 500, -0.0F}));
  EXPECT_EQ(list_of(geglu(x.view(), GeluForm::tanh)), (std::vector<float>{-0.0F, 200, 500, -0.0F}));
}

// From tables: gelu(1) is 0.8413447461 (the normal distribution), silu(1) is 0.7310585786; the tanh
// form of gelu(1) is 0.8411919906.
TEST(ActivationTest, NumbersFromTables) {
  const Tensor x = numbers({4}, {1, -1, 0, -2});
  EXPECT_EQ(list_of(gelu(x.view())),
            (std::vector<float>{0.8413447461F, -0.1586552539F, 0, -2 * 0.0227501319F}));
  EXPECT_EQ(list_of(gelu(x.view(), GeluForm::tanh))[0], 0.8411919906F);
  EXPECT_EQ(list_of(silu(x.view()))[0], 0.7310585786F);
  EXPECT_EQ(list_of(relu(x.view())), (std::vector<float>{1, 0, 0, 0}));
}

TEST(ActivationTest, ZerosAndWhatIsNotFinite) {
  const Tensor x = numbers({5}, {NAN, HUGE_VALF, -HUGE_VALF, -0.0F, -1e30F});
  for (const Tensor& y : {gelu(x.view()), gelu(x.view(), GeluForm::tanh), silu(x.view())}) {
    const auto values = list_of(y);
    EXPECT_TRUE(std::isnan(values[0]));
    EXPECT_EQ(values[1], HUGE_VALF);
    EXPECT_TRUE(std::isnan(values[2])) << "Inf times zero: a fault stays visible";
    EXPECT_TRUE(values[3] == 0.0F && std::signbit(values[3]));
    EXPECT_EQ(values[4], 0.0F);
  }
  const auto values = list_of(relu(x.view()));
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_EQ(values[1], HUGE_VALF);
  EXPECT_EQ(values[2], 0.0F);
  EXPECT_TRUE(values[3] == 0.0F && !std::signbit(values[3]));
}

TEST(ActivationTest, ASingleNumber) {
  const Tensor x = numbers({}, {3});
  EXPECT_EQ(list_of(relu(x.view())), std::vector<float>{3});
  EXPECT_EQ(quantize(produced(x.view(), Activation{}), preset("fp8")).shape, Shape{});
}

TEST(ActivationTest, QuantizedWithoutRoundingInBetween) {
  const Tensor x = numbers({1, 4}, {1, 2, 3, 4});
  const QuantizedTensor q = quantize(
      produced(x.view(), Activation{.kind = ActivationKind::relu, .gated = true}), preset("fp8"));
  EXPECT_EQ(q.shape, (Shape{1, 2}));
  const Tensor plain = numbers({1, 2}, {3, 8});
  EXPECT_EQ(list_of(dequantize(q)), list_of(dequantize(quantize(plain.view(), preset("fp8")))));
}

TEST(ActivationTest, WhatDoesNotFitIsNamed) {
  const auto message = [](const View& x, bool gated) -> std::string {
    try {
      (void)produced(x, Activation{.kind = ActivationKind::silu, .gated = gated});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(numbers({1, 3}, {1, 2, 3}).view(), true),
            "[swiglu] the last dimension is 3; a gated activation wants an even one: what is "
            "activated, then what it is multiplied by");
  EXPECT_EQ(message(numbers({}, {1}).view(), true),
            "[swiglu] the input is a single number; a gated activation wants two halves along "
            "the last dimension");
  EXPECT_EQ(message(Tensor::codes({2}, e4m3fn).view(), false),
            "[silu] the input holds codes; expected float64, float32, float16 or bfloat16; "
            "dequantize it first");
}

}  // namespace
}  // namespace octavo
