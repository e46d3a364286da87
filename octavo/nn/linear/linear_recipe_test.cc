// A layer under recipes that fit, do not fit and change; errors come before any change.
#include <gtest/gtest.h>

#include <stdexcept>

#include "octavo/nn/linear/linear.h"
#include "octavo/nn/linear/nn_testing_internal.h"

namespace octavo {
namespace {

TEST(LinearRecipe, WeightsThatDoNotFitTheRecipe) {
  for (const Recipe& made_with : {Recipe(MXFP8BlockScaling{}), Recipe(Float8BlockScaling{})}) {
    std::optional<Linear> layer;
    {
      const auto init = quantized_model_init(made_with);
      layer.emplace(kLayerSize, kLayerSize);
    }
    const auto scope = autocast(DelayedScaling{});
    const auto [code, text] = error_of([&] {
      (void)layer->forward(noise({kLayerSize, kLayerSize}, 0.3));
    });
    EXPECT_EQ(code, ErrorCode::unsupported);
    EXPECT_TRUE(text.starts_with("Recipe mismatch for Linear.weight: Weight was initialized with " +
                                 std::string(made_with.name()) +
                                 ", but current recipe is DelayedScaling. "))
        << text;
    // Nothing was touched: with the right recipe it goes on.
    EXPECT_EQ(layer->quantizers("scaling_fwd")->recipe(), made_with);
    const auto right = autocast(made_with);
    EXPECT_EQ(layer->forward(noise({kLayerSize, kLayerSize}, 0.3)).shape(),
              (Shape{kLayerSize, kLayerSize}));
  }
}

TEST(LinearRecipe, SwitchesOfRecipe) {
  struct Case {
    Recipe target;
    std::string quantizer;
  };
  for (const Case& at : {Case{MXFP8BlockScaling{}, "MXFP8Quantizer"},
                         Case{Float8BlockScaling{}, "Float8BlockQuantizer"}}) {
    Heard heard;
    Linear layer(kLayerSize, kLayerSize, heard.options());
    EXPECT_EQ(layer.quantizers("scaling_fwd"), nullptr);
    for (int i = 0; i < 3; ++i) train(layer, DelayedScaling{}, 0.1 + i);
    const auto all_are = [&](std::string_view name) {
      for (const char* key : {"scaling_fwd", "scaling_bwd"})
        for (std::size_t slot = 0; slot < layer.quantizers(key)->size(); ++slot)
          EXPECT_EQ(layer.quantizers(key)->at(slot).name(), name);
    };
    all_are("Float8Quantizer");
    EXPECT_EQ(layer.quantizers("scaling_fwd")->size(), 3U);
    EXPECT_TRUE(heard.texts.empty());
    for (int i = 0; i < 3; ++i) {
      train(layer, at.target, 0.5 + i);
      all_are(at.quantizer);
      EXPECT_EQ(heard.texts,
                (std::vector<std::string>{"Recipe type changed from DelayedScaling to " +
                                          std::string(at.target.name()) +
                                          ". Replacing quantizers for Linear."}));
    }
  }
}

TEST(LinearRecipe, QuantizedWeightsWithoutARecipeWarn) {
  Heard heard;
  std::optional<Linear> layer;
  {
    const auto init = quantized_model_init(MXFP8BlockScaling{});
    layer.emplace(kLayerSize, kLayerSize, heard.options());
  }
  const Tensor x = noise({4, kLayerSize}, 0.3);
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(same_bits(layer->forward(x), [&] {
      Linear plain(dequantize(*layer->quantized_weight()), layer->bias());
      return plain.forward(x);
    }()));
  ASSERT_EQ(heard.texts.size(), 1U);
  EXPECT_TRUE(heard.texts[0].starts_with("You are using quantized weights without quantized "))
      << heard.texts[0];
}

TEST(LinearRecipe, AnExceptionInsideAutocastLeavesNothingBehind) {
  Linear layer(kLayerSize, kLayerSize);
  try {
    const auto scope = autocast(DelayedScaling{});
    (void)layer.forward(noise({4, kLayerSize}, 0.2, 100.0));
    throw std::runtime_error("further down the model");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(current_autocast().enabled);
  EXPECT_EQ(layer.quantizers("scaling_fwd")->amaxes(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(layer.quantizers("scaling_fwd")->inv_scale().span<float>()[0], 1.0F);
  const Tensor x = noise({4, kLayerSize}, 0.2);
  EXPECT_TRUE(same_bits(layer.forward(x), Linear(layer.weight(), layer.bias()).forward(x)));
}

TEST(LinearRecipe, AWarningThatThrowsLeavesTheLayerAsItWas) {
  Linear layer(kLayerSize, kLayerSize, {.warn = [](std::string_view) {
                 throw std::runtime_error("warnings are errors here");
               }});
  train(layer, DelayedScaling{}, 0.1);
  const auto before = layer.quantizers("scaling_fwd");
  EXPECT_THROW(train(layer, MXFP8BlockScaling{}, 0.1), std::runtime_error);
  EXPECT_EQ(layer.quantizers("scaling_fwd"), before);
  EXPECT_FALSE(current_autocast().enabled);
}

TEST(LinearRecipe, ATypeThatARecipeDoesNotTakeIsRefusedBeforeAnythingChanges) {
  Heard heard;
  Linear layer(kLayerSize, kLayerSize, heard.options());
  train(layer, DelayedScaling{}, 0.1);
  const auto before = layer.quantizers("scaling_fwd");
  {
    const auto scope = autocast(NVFP4BlockScaling{});
    for (const bool training : {true, false}) {
      const auto [code, message] = error_of([&] {
        (void)layer.forward(noise<double>({kLayerSize, kLayerSize}, 0.3), {.training = training});
      });
      EXPECT_EQ(code, ErrorCode::wrong_type);
      EXPECT_EQ(message,
                "[Linear] x is float64; expected float32, float16 or bfloat16: under "
                "NVFP4BlockScaling it goes through a Hadamard transform, which is done in "
                "float32; cast x to float32");
    }
  }
  EXPECT_TRUE(heard.texts.empty());
  EXPECT_EQ(layer.quantizers("scaling_fwd"), before);

  const auto scope = autocast(NVFP4BlockScaling{.disable_rht = true});
  EXPECT_NO_THROW((void)layer.forward(noise<double>({kLayerSize, kLayerSize}, 0.3)));
  const auto transformed = autocast(NVFP4BlockScaling{});
  (void)layer.forward(noise({kLayerSize, kLayerSize}, 0.3));
  EXPECT_NE(error_of([&] {
              (void)layer.backward(noise<double>({kLayerSize, kLayerSize}, 0.3));
            }).second.find("[Linear] dy is float64"),
            std::string::npos);
}

}  // namespace
}  // namespace octavo
