// What a layer computes: held against products written out here, and against quant/ and ops/ called
// by hand.
#include <gtest/gtest.h>

#include <functional>

#include "octavo/nn/linear/linear.h"
#include "octavo/nn/linear/nn_testing_internal.h"
#include "octavo/ops/gemm.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

// A loss whose gradient with respect to y is g: the sum of g * y.
double loss(Linear& layer, const Tensor& x, const Tensor& g) {
  const Tensor y = layer.forward(x, {.training = false});
  double sum = 0;
  for (std::size_t i = 0; i < y.span<double>().size(); ++i)
    sum += y.span<double>()[i] * g.span<double>()[i];
  return sum;
}

TEST(LinearGradient, FiniteDifferences) {
  const Tensor x = noise<double>({2, 3, 7}, 0.3), w = noise<double>({5, 7}, 0.5),
               bias = noise<double>({5}, 0.9), g = noise<double>({2, 3, 5}, 0.7);
  Linear layer(w, bias);
  (void)layer.forward(x);
  const Tensor dx = layer.backward(g);
  // The loss is linear in each element, so differences have no truncation error and h may be large;
  // what is left is rounding: 210 terms of about 1, 2^-53 each, over 2 h.
  constexpr double kStep = 0.5, kTolerance = 1e-12;
  const auto check_all = [&](const Tensor& parameter, const Tensor& gradient) {
    ASSERT_EQ(parameter.shape(), gradient.shape());
    for (std::size_t i = 0; i < parameter.span<double>().size(); ++i) {
      double& value = parameter.span<double>()[i];
      const double at = value;
      value = at + kStep;
      const double up = loss(layer, x, g);
      value = at - kStep;
      const double down = loss(layer, x, g);
      value = at;
      const double wanted = (up - down) / (2 * kStep), got = gradient.span<double>()[i];
      EXPECT_NEAR(got, wanted, kTolerance * std::max(1.0, std::abs(wanted))) << i;
    }
  };
  check_all(x, dx);
  check_all(w, layer.weight_grad());
  check_all(bias, layer.bias_grad());
}

TEST(LinearGradient, GradientsAddUpUntilTheyAreCleared) {
  const Tensor x = noise<double>({4, 7}, 0.3), g = noise<double>({4, 5}, 0.7);
  Linear layer(noise<double>({5, 7}, 0.5), noise<double>({5}, 0.9));
  const auto step = [&] {
    (void)layer.forward(x);
    (void)layer.backward(g);
    return std::pair(layer.weight_grad(), layer.bias_grad());
  };
  const auto once = step(), twice = step();
  for (std::size_t i = 0; i < 35; ++i)
    EXPECT_NEAR(twice.first.span<double>()[i], 2 * once.first.span<double>()[i], 1e-14);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(twice.second.span<double>()[i], 2 * once.second.span<double>()[i], 1e-14);
  layer.zero_grad();
  EXPECT_EQ(layer.weight_grad().view().data, nullptr);
  EXPECT_TRUE(same_bits(step().first, once.first));
}

// The recipes, and how x, w and dy are quantized under each, written without recipe/.
struct Named {
  std::string name;
  Recipe recipe;
  std::function<std::shared_ptr<Quantizer>(TensorRole)> quantizer;
};

std::vector<Named> recipes() {
  using enum TensorRole;
  const auto format = [](TensorRole role) { return role == grad_output ? e5m2 : e4m3fn; };
  return {
      {"current", Float8CurrentScaling{},
       [=](TensorRole role) {
         return std::make_shared<Float8CurrentScalingQuantizer>(
             Float8CurrentScalingOptions{.format = format(role)});
       }},
      {"current, powers of two", Float8CurrentScaling{.use_power_2_scales = true},
       [=](TensorRole role) {
         return std::make_shared<Float8CurrentScalingQuantizer>(
             Float8CurrentScalingOptions{.format = format(role), .power_of_two = true});
       }},
      {"block", Float8BlockScaling{},
       [](TensorRole role) {
         return std::make_shared<Float8BlockQuantizer>(
             Float8BlockOptions{.block_dims = role == weight ? 2 : 1});
       }},
      {"block, f32", Float8BlockScaling{.use_f32_scales = true},
       [](TensorRole role) {
         return std::make_shared<Float8BlockQuantizer>(
             Float8BlockOptions{.power_of_two = false, .block_dims = role == weight ? 2 : 1});
       }},
      {"mxfp8", MXFP8BlockScaling{}, [](TensorRole) { return std::make_shared<MXFP8Quantizer>(); }},
      {"mxfp8, hybrid, 2d",
       MXFP8BlockScaling{.fp8_format = RecipeFormat::HYBRID, .enable_2d_quantization = true},
       [=](TensorRole role) {
         return std::make_shared<MXFP8Quantizer>(
             MXFP8Options{.format = format(role), .two_dimensional = role == weight});
       }},
      {"nvfp4, nearest", NVFP4BlockScaling{.disable_stochastic_rounding = true},
       [](TensorRole role) {
         return std::make_shared<NVFP4Quantizer>(
             NVFP4Options{.with_rht = role != weight, .two_dimensional = role == weight});
       }},
  };
}

TEST(LinearGradient, EqualToQuantAndOpsCalledByHand) {
  // Ragged: no multiple of any tile.
  constexpr std::int64_t kRows = 50, kIn = 136, kOut = 70;
  const Tensor x = noise({2, 25, kIn}, 0.3), w = noise({kOut, kIn}, 0.5, 0.1),
               bias = noise({kOut}, 0.9), dy = noise({2, 25, kOut}, 0.7, 1e-3);
  const auto matrix = [](const Tensor& tensor, std::int64_t cols) {
    return value_view(tensor.view().data, DType::f32, {kRows, cols});
  };
  for (const Named& at : recipes()) {
    SCOPED_TRACE(at.name);
    Linear layer(w, bias);
    Tensor y;
    {
      const auto scope = autocast(at.recipe);
      y = layer.forward(x);
    }
    const Tensor dx = layer.backward(dy);

    const QuantizedTensor qx = at.quantizer(TensorRole::input)->quantize(matrix(x, kIn)),
                          qw = at.quantizer(TensorRole::weight)->quantize(w.view()),
                          qdy = at.quantizer(TensorRole::grad_output)->quantize(matrix(dy, kOut));
    const auto flat = [](const Tensor& tensor, std::int64_t cols) {
      return Tensor::adopt(value_view(tensor.view().data, DType::f32, {kRows, cols}),
                           tensor.owner());
    };
    EXPECT_EQ(y.shape(), (Shape{2, 25, kOut}));
    EXPECT_EQ(dx.shape(), (Shape{2, 25, kIn}));
    EXPECT_TRUE(same_bits(flat(y, kOut), gemm(qx, qw, {.bias = bias.view()})));
    EXPECT_TRUE(same_bits(flat(dx, kIn), gemm(qdy, transposed(qw))));
    EXPECT_TRUE(same_bits(layer.weight_grad(), gemm(transposed(qdy), transposed(qx))));
    // The bias gradient is the sum of dy itself: within K roundings of f32 of the sum in f64.
    for (std::int64_t n = 0; n < kOut; ++n) {
      double sum = 0, size = 0;
      for (std::int64_t m = 0; m < kRows; ++m) {
        const auto value =
            static_cast<double>(dy.span<float>()[static_cast<std::size_t>(m * kOut + n)]);
        sum += value;
        size += std::abs(value);
      }
      EXPECT_NEAR(static_cast<double>(layer.bias_grad().span<float>()[static_cast<std::size_t>(n)]),
                  sum, static_cast<double>(kRows) * 0x1p-24 * size);
    }
  }
}

TEST(LinearGradient, DelayedScalingByHand) {
  const Tensor x = noise({48, 40}, 0.3, 3.0), w = noise({24, 40}, 0.5), dy = noise({48, 24}, 0.7);
  Linear layer(w);
  // The first step has scales of one, the second those of the first step's amaxes.
  float inv_x = 1, inv_w = 1, inv_dy = 1;
  for (int step = 0; step < 2; ++step) {
    Tensor y;
    {
      const auto scope = autocast(DelayedScaling{});
      y = layer.forward(x);
    }
    layer.zero_grad();
    const Tensor dx = layer.backward(dy);
    Scaling fp8 = Float8CurrentScalingQuantizer().scaling();
    Scaling gradient = fp8;
    gradient.format = e5m2;
    const QuantizedTensor qx = quantize(x.view(), fp8, {.given_inv_scale = &inv_x}),
                          qw = quantize(w.view(), fp8, {.given_inv_scale = &inv_w}),
                          qdy = quantize(dy.view(), gradient, {.given_inv_scale = &inv_dy});
    EXPECT_TRUE(same_bits(y, gemm(qx, qw)));
    EXPECT_TRUE(same_bits(dx, gemm(qdy, transposed(qw))));
    EXPECT_TRUE(same_bits(layer.weight_grad(), gemm(transposed(qdy), transposed(qx))));
    inv_x = 448.0F / amax(x.view());
    inv_w = 448.0F / amax(w.view());
    inv_dy = 57344.0F / amax(dy.view());
  }
}

TEST(LinearGradient, StochasticRoundingOfNvfp4) {
  const Tensor x = noise({32, 64}, 0.3), w = noise({48, 64}, 0.5), dy = noise({32, 48}, 0.7);
  Linear layer(w);
  std::vector<Tensor> results;
  for (int step = 0; step < 2; ++step) {
    {
      const auto scope = autocast(NVFP4BlockScaling{});
      (void)layer.forward(x);
    }
    layer.zero_grad();
    const Tensor dx = layer.backward(dy);
    const Scaling used = layer.quantizers("scaling_bwd")->at(0).scaling();
    const QuantizedTensor qx = NVFP4Quantizer({.with_rht = true}).quantize(x.view()),
                          qw = NVFP4Quantizer({.two_dimensional = true}).quantize(w.view()),
                          qdy = NVFP4Quantizer({.with_rht = true,
                                                .stochastic_rounding = true,
                                                .seed = used.encode.seed})
                                    .quantize(dy.view());
    EXPECT_TRUE(same_bits(dx, gemm(qdy, transposed(qw))));
    EXPECT_TRUE(same_bits(layer.weight_grad(), gemm(transposed(qdy), transposed(qx))));
    results.push_back(dx);
  }
  EXPECT_FALSE(same_bits(results[0], results[1]));  // each step has draws of its own
}

TEST(LinearGradient, CustomRecipe) {
  // MXFP8 forward, FP8 blocks for gradients.
  const CustomRecipe recipe{.qfactory = std::make_shared<const QuantizerFactory>(
                                [](const QuantizerRole& role) -> std::shared_ptr<Quantizer> {
                                  if (is_gradient(role.tensor))
                                    return std::make_shared<Float8BlockQuantizer>(
                                        Float8BlockOptions{.block_dims = 1});
                                  return std::make_shared<MXFP8Quantizer>();
                                })};
  const Tensor x = noise({8, 64}, 0.3), w = noise({16, 64}, 0.5), dy = noise({8, 16}, 0.7);
  Linear layer(w);
  {
    const auto scope = autocast(recipe);
    (void)layer.forward(x);
  }
  const QuantizedTensor qw = MXFP8Quantizer().quantize(w.view()),
                        qdy = Float8BlockQuantizer({.block_dims = 1}).quantize(dy.view());
  EXPECT_TRUE(same_bits(layer.backward(dy), gemm(qdy, transposed(qw))));
}

TEST(LinearGradient, BackwardOverrides) {
  const Tensor x = noise({32, 64}, 0.3), w = noise({48, 64}, 0.5), dy = noise({32, 48}, 0.7);
  const auto transpose = [](const Tensor& tensor) {
    View view = tensor.view();
    std::swap(view.shape[0], view.shape[1]);
    std::swap(view.strides[0], view.strides[1]);
    return view;
  };
  const MXFP8Quantizer mx;
  const Tensor x_hat = dequantize(MXFP8Quantizer().quantize(x.view())),
               w_hat = dequantize(MXFP8Quantizer().quantize(w.view()));
  for (const BackwardOverride override :
       {BackwardOverride::high_precision, BackwardOverride::dequantized}) {
    SCOPED_TRACE(name_of(override));
    const bool original = override == BackwardOverride::high_precision;
    Linear layer(w);
    Tensor y;
    {
      const auto scope = autocast(MXFP8BlockScaling{.backward_override = override});
      y = layer.forward(x);
    }
    EXPECT_TRUE(same_bits(
        y, gemm(MXFP8Quantizer().quantize(x.view()), MXFP8Quantizer().quantize(w.view()))));
    // 32 x 64 values in f32, or codes with a scale for each 32.
    EXPECT_EQ(layer.saved().x_nbytes(), original ? 32 * 64 * 4 : 32 * 64 + 32 * 64 / 32);
    EXPECT_TRUE(same_bits(layer.backward(dy), gemm(dy, transpose(original ? w : w_hat))));
    EXPECT_TRUE(
        same_bits(layer.weight_grad(), gemm(transpose(dy), transpose(original ? x : x_hat))));
  }
}

TEST(LinearGradient, ErrorOfEachRecipeIsThatOfItsFormat) {
  // Rounding moves an element by at most u of itself (half a step of its mantissa), so a product of
  // two by at most 2u + u^2. The operands' signs are as good as random: y and its error both add up
  // as roots of squares, so relative to each other they are as one product is, below 2u; with
  // gradients of another format below the sum of both. Uniform rounding errors have a root mean
  // square of at least u / sqrt(3) / 2 at each operand; a quarter of that says it was quantized.
  const Tensor x = noise({64, 256}, 0.3), w = noise({48, 256}, 0.5), dy = noise({64, 48}, 0.7);
  Linear exact(w);
  const Tensor wanted = exact.forward(x), wanted_dx = exact.backward(dy);
  const auto off = [](const Tensor& a, const Tensor& b) {
    double error = 0, size = 0;
    for (std::size_t i = 0; i < a.span<float>().size(); ++i) {
      const double d = static_cast<double>(a.span<float>()[i]) - b.span<float>()[i];
      error += d * d;
      size += static_cast<double>(b.span<float>()[i]) * b.span<float>()[i];
    }
    return std::sqrt(error / size);
  };
  constexpr double kE4m3 = 0x1p-4, kE5m2 = 0x1p-3, kE2m1 = 0x1p-2;
  for (const Named& at : recipes()) {
    SCOPED_TRACE(at.name);
    Linear layer(w);
    Tensor y;
    {
      const auto scope = autocast(at.recipe);
      y = layer.forward(x);
    }
    const double forward = at.recipe.nvfp4() ? kE2m1 : kE4m3,
                 backward = at.recipe.format() == RecipeFormat::HYBRID ? kE5m2 : forward;
    const double y_off = off(y, wanted), dx_off = off(layer.backward(dy), wanted_dx);
    EXPECT_LT(y_off, 2 * forward);
    EXPECT_GT(y_off, forward / 14);
    EXPECT_LT(dx_off, forward + backward);
    EXPECT_GT(dx_off, backward / 14);
  }
}

}  // namespace
}  // namespace octavo
