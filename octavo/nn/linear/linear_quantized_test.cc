// What the numbers of a quantized layer are: its codes and scales, their memory, sums and faults.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/nn/linear/linear.h"
#include "octavo/nn/linear/nn_testing_internal.h"
#include "octavo/ops/gemm.h"

namespace octavo {
namespace {

TEST(LinearQuantized, E8m0ScalesAtTheirLimits) {
  // x w^T with one element in the row: the product shows the scale. 2^-127 is the least e8m0 has:
  // what is below its smallest multiple is zero. Weights of 1 have the scale 2^-8 exactly.
  for (const auto& [value, wanted] : std::vector<std::pair<float, float>>{
           {0x1p127F, 0x1p127F},                      // scale 2^119
           {448.0F * 0x1p-127F, 448.0F * 0x1p-127F},  // scale 2^-127
           {0x1p-127F, 0x1p-127F},
           {0x1p-136F, 0x1p-136F},  // 2^-127 times the least e4m3, 2^-9
           {0x1p-138F, 0.0F},
           {0.0F, 0.0F}}) {
    const Tensor x = Tensor::values({1, kLayerSize}, DType::f32),
                 w = Tensor::values({1, kLayerSize}, DType::f32);
    for (std::size_t i = 0; i < kLayerSize; ++i) {
      x.span<float>()[i] = i == 5 ? value : 0.0F;
      w.span<float>()[i] = 1.0F;
    }
    Linear layer(w);
    const auto scope = autocast(MXFP8BlockScaling{});
    EXPECT_EQ(layer.forward(x).span<float>()[0], wanted) << value;
  }
}

TEST(LinearQuantized, MemoryOfQuantizedWeights) {
  const auto init =
      quantized_model_init(MXFP8BlockScaling{}, {.preserve_high_precision_init_val = true});
  Linear layer(kLayerSize, kLayerSize, {.seed = 5});
  // 32 x 32 codes and 32 scales, of the matrix and of its transpose.
  EXPECT_EQ(layer.weight_nbytes(), 2112);
  EXPECT_EQ(layer.quantized_weight()->rowwise.nbytes(), 1056);
  EXPECT_EQ(layer.quantized_weight()->columnwise.nbytes(), 1056);
  EXPECT_EQ(layer.weight().view().data, nullptr);
  EXPECT_EQ(layer.high_precision_init_val().shape(), (Shape{kLayerSize, kLayerSize}));
  const auto off = quantized_model_init(MXFP8BlockScaling{}, {.enabled = false});
  const Linear plain(kLayerSize, kLayerSize, {.seed = 5});
  EXPECT_EQ(plain.weight_nbytes(), 4096);
  EXPECT_TRUE(same_bits(plain.weight(), layer.high_precision_init_val()));
  layer.clear_high_precision_init_val();
  EXPECT_EQ(layer.high_precision_init_val().view().data, nullptr);
}

TEST(LinearQuantized, DelayedWeightsBeginWithAScaleOfTheirOwn) {
  const auto init =
      quantized_model_init(DelayedScaling{}, {.preserve_high_precision_init_val = true});
  Linear layer(kLayerSize, kLayerSize);
  const float inv_scale = 448.0F / amax(layer.high_precision_init_val().view());
  EXPECT_EQ(layer.quantized_weight()->rowwise.scales.span<float>()[0], 1.0F / inv_scale);
  const Tensor doubled = noise({kLayerSize, kLayerSize}, 0.2, 0.01);
  layer.set_quantized_weight(doubled.view());
  EXPECT_EQ(layer.quantizers("scaling_fwd")->amaxes()[1], amax(doubled.view()));
  EXPECT_EQ(error_of([&] {
              layer.set_quantized_weight(noise({2, 2}, 0.1).view());
            }).first,
            ErrorCode::invalid_argument);
}

TEST(LinearQuantized, TensorCoreSumsArePromotedAsTheRecipeSays) {
  // Sums of one sign, long enough that a short accumulator loses of them.
  const std::int64_t k = 1024;
  const auto positive = [](const Shape& shape, double step) {
    const Tensor tensor = noise(shape, step);
    for (float& value : tensor.span<float>()) value = std::abs(value);
    return tensor;
  };
  const Tensor x = positive({8, k}, 0.3), weight = positive({8, k}, 0.7);
  Float8CurrentScalingQuantizer rows({.columnwise = false});
  for (const bool split : {true, false}) {
    Linear layer(weight, {}, {.run = {.accumulator = Accumulator::hopper_fp8}});
    const auto scope =
        autocast(Float8CurrentScaling{.fp8_gemm_fprop = {.use_split_accumulator = split}});
    const GemmOptions by_hand{.accumulator = Accumulator::hopper_fp8,
                              .promote_every = split ? 128 : 0};
    EXPECT_TRUE(same_bits(layer.forward(x),
                          gemm(rows.quantize(x.view()), rows.quantize(weight.view()), by_hand)));
  }
}

TEST(LinearQuantized, TensorCoreSumsAreOfFp8) {
  Linear layer(kLayerSize, kLayerSize, {.run = {.accumulator = Accumulator::hopper_fp8}});
  const auto scope = autocast(NVFP4BlockScaling{});
  EXPECT_EQ(error_of([&] {
              (void)layer.forward(noise({4, kLayerSize}, 0.3));
            }),
            std::pair(std::optional(ErrorCode::unsupported),
                      std::string("[Linear] got accumulator hopper_fp8, which multiplies e4m3 and "
                                  "e5m2, and under NVFP4BlockScaling the input is e2m1fn; leave it "
                                  "float32")));
  EXPECT_EQ(layer.quantizers("scaling_fwd"), nullptr);
}

// FP8 has a code for NaN; FP4 has not, so it makes the scale of its tile NaN.
TEST(LinearQuantized, NanShowsUnderEveryRecipe) {
  for (const Recipe& recipe :
       {Recipe(DelayedScaling{}), Recipe(Float8CurrentScaling{}), Recipe(Float8BlockScaling{}),
        Recipe(MXFP8BlockScaling{}), Recipe(NVFP4BlockScaling{})}) {
    Linear layer(kLayerSize, kLayerSize);
    const Tensor x = noise({kLayerSize, kLayerSize}, 0.3);
    x.span<float>()[3 * kLayerSize + 5] = std::numeric_limits<float>::quiet_NaN();
    Tensor y;
    {
      const auto scope = autocast(recipe);
      y = layer.forward(x);
    }
    (void)layer.backward(noise({kLayerSize, kLayerSize}, 0.4));
    for (std::size_t i = 0; i < kLayerSize; ++i) {
      EXPECT_TRUE(std::isnan(y.span<float>()[3 * kLayerSize + i])) << recipe.name();
      EXPECT_FALSE(std::isnan(y.span<float>()[4 * kLayerSize + i])) << recipe.name();
      EXPECT_TRUE(std::isnan(layer.weight_grad().span<float>()[i * kLayerSize + 5]))
          << recipe.name();
    }
  }
}

}  // namespace
}  // namespace octavo
