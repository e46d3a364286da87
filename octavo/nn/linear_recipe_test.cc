// A layer under recipes that fit, do not fit and change: the state it keeps.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "octavo/nn/linear.h"
#include "octavo/nn/nn_testing_internal.h"
#include "octavo/ops/gemm.h"

namespace octavo {
namespace {

constexpr std::int64_t kSize = 32;

struct Heard {
  std::vector<std::string> texts;
  [[nodiscard]] LinearOptions options() {
    return {.warn = [this](std::string_view text) { texts.emplace_back(text); }};
  }
};

// Forward inside the scope, backward outside of it.
void train(Linear& layer, const Recipe& recipe, double step) {
  Tensor y;
  {
    const auto scope = autocast(recipe);
    y = layer.forward(noise({kSize, kSize}, step));
  }
  (void)layer.backward(noise(y.shape(), 0.77 * step));
}

TEST(LinearRecipe, WeightsThatDoNotFitTheRecipe) {
  for (const Recipe& made_with : {Recipe(MXFP8BlockScaling{}), Recipe(Float8BlockScaling{})}) {
    std::optional<Linear> layer;
    {
      const auto init = quantized_model_init(made_with);
      layer.emplace(kSize, kSize);
    }
    const auto scope = autocast(DelayedScaling{});
    const auto [code, text] = error_of([&] { (void)layer->forward(noise({kSize, kSize}, 0.3)); });
    EXPECT_EQ(code, ErrorCode::unsupported);
    EXPECT_TRUE(text.starts_with("Recipe mismatch for Linear.weight: Weight was initialized with " +
                                 std::string(made_with.name()) +
                                 ", but current recipe is DelayedScaling. "))
        << text;
    // Nothing was touched: with the right recipe it goes on.
    EXPECT_EQ(layer->quantizers("scaling_fwd")->recipe(), made_with);
    const auto right = autocast(made_with);
    EXPECT_EQ(layer->forward(noise({kSize, kSize}, 0.3)).shape(), (Shape{kSize, kSize}));
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
    Linear layer(kSize, kSize, heard.options());
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

TEST(LinearRecipe, ScalesAndAmaxesPersist) {
  Linear layer(kSize, kSize);
  const DelayedScaling recipe{.amax_history_len = 16};
  const float weight_amax = amax(layer.weight().view());
  std::vector<float> seen;
  for (int i = 0; i < 3; ++i) {
    const Tensor x = noise({kSize, kSize}, 0.1 + i, 2.0 + i), dy = noise({kSize, kSize}, 0.7);
    seen.push_back(amax(x.view()));
    {
      const auto scope = autocast(recipe);
      (void)layer.forward(x);
      // The step has not ended: its amax is in row 0.
      EXPECT_EQ(layer.quantizers("scaling_fwd")->amaxes(),
                (std::vector<float>{seen.back(), weight_amax, 0}));
    }
    (void)layer.backward(dy);
    const QuantizerSet &fwd = *layer.quantizers("scaling_fwd"),
                       &bwd = *layer.quantizers("scaling_bwd");
    EXPECT_EQ(fwd.inv_scale().span<float>()[0], 448.0F / seen.back());  // the largest is the last
    EXPECT_EQ(fwd.inv_scale().span<float>()[1], 448.0F / weight_amax);
    EXPECT_EQ(fwd.inv_scale().span<float>()[2], 1.0F);  // y is not quantized
    EXPECT_EQ(bwd.inv_scale().span<float>()[0], 57344.0F / amax(dy.view()));
    EXPECT_EQ(bwd.inv_scale().span<float>()[1], 1.0F);
  }
  const auto history = layer.quantizers("scaling_fwd")->amax_history().span<float>();
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(history[(13 + i) * 3], seen[i]);
}

TEST(LinearRecipe, Mxfp8KeepsNoState) {
  Linear layer(kSize, kSize);
  train(layer, MXFP8BlockScaling{}, 0.1);
  const auto set = layer.quantizers("scaling_fwd");
  EXPECT_FALSE(set->has_state());
  EXPECT_EQ(set->amax_history().view().data, nullptr);
  // What came before does not matter.
  Linear fresh(kSize, kSize);
  const auto scope = autocast(MXFP8BlockScaling{});
  const Tensor x = noise({kSize, kSize}, 0.9);
  EXPECT_TRUE(same_bits(layer.forward(x), fresh.forward(x)));
}

TEST(LinearRecipe, E8m0ScalesAtTheirLimits) {
  // x w^T with one element in the row: the product shows the scale. 2^-127 is the least e8m0 has:
  // what is below its smallest multiple is zero. Weights of 1 have the scale 2^-8 exactly.
  for (const auto& [value, wanted] : std::vector<std::pair<float, float>>{
           {0x1p127F, 0x1p127F},                      // scale 2^119
           {448.0F * 0x1p-127F, 448.0F * 0x1p-127F},  // scale 2^-127
           {0x1p-127F, 0x1p-127F},
           {0x1p-136F, 0x1p-136F},  // 2^-127 times the least e4m3, 2^-9
           {0x1p-138F, 0.0F},
           {0.0F, 0.0F}}) {
    const Tensor x = Tensor::values({1, kSize}, DType::f32),
                 w = Tensor::values({1, kSize}, DType::f32);
    for (std::size_t i = 0; i < kSize; ++i) {
      x.span<float>()[i] = i == 5 ? value : 0.0F;
      w.span<float>()[i] = 1.0F;
    }
    Linear layer(w);
    const auto scope = autocast(MXFP8BlockScaling{});
    EXPECT_EQ(layer.forward(x).span<float>()[0], wanted) << value;
  }
}

TEST(LinearRecipe, MemoryOfQuantizedWeights) {
  const auto init =
      quantized_model_init(MXFP8BlockScaling{}, {.preserve_high_precision_init_val = true});
  Linear layer(kSize, kSize, {.seed = 5});
  // 32 x 32 codes and 32 scales, of the matrix and of its transpose.
  EXPECT_EQ(layer.weight_nbytes(), 2112);
  EXPECT_EQ(layer.quantized_weight()->rowwise.nbytes(), 1056);
  EXPECT_EQ(layer.quantized_weight()->columnwise.nbytes(), 1056);
  EXPECT_EQ(layer.weight().view().data, nullptr);
  EXPECT_EQ(layer.high_precision_init_val().shape(), (Shape{kSize, kSize}));
  const auto off = quantized_model_init(MXFP8BlockScaling{}, {.enabled = false});
  const Linear plain(kSize, kSize, {.seed = 5});
  EXPECT_EQ(plain.weight_nbytes(), 4096);
  EXPECT_TRUE(same_bits(plain.weight(), layer.high_precision_init_val()));
  layer.clear_high_precision_init_val();
  EXPECT_EQ(layer.high_precision_init_val().view().data, nullptr);
}

TEST(LinearRecipe, DelayedWeightsBeginWithAScaleOfTheirOwn) {
  const auto init =
      quantized_model_init(DelayedScaling{}, {.preserve_high_precision_init_val = true});
  Linear layer(kSize, kSize);
  const float inv_scale = 448.0F / amax(layer.high_precision_init_val().view());
  EXPECT_EQ(layer.quantized_weight()->rowwise.scales.span<float>()[0], 1.0F / inv_scale);
  const Tensor doubled = noise({kSize, kSize}, 0.2, 0.01);
  layer.set_quantized_weight(doubled.view());
  EXPECT_EQ(layer.quantizers("scaling_fwd")->amaxes()[1], amax(doubled.view()));
  EXPECT_EQ(error_of([&] {
              layer.set_quantized_weight(noise({2, 2}, 0.1).view());
            }).first,
            ErrorCode::invalid_argument);
}

TEST(LinearRecipe, QuantizedWeightsWithoutARecipeWarn) {
  Heard heard;
  std::optional<Linear> layer;
  {
    const auto init = quantized_model_init(MXFP8BlockScaling{});
    layer.emplace(kSize, kSize, heard.options());
  }
  const Tensor x = noise({4, kSize}, 0.3);
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(same_bits(layer->forward(x), [&] {
      Linear plain(dequantize(*layer->quantized_weight()), layer->bias());
      return plain.forward(x);
    }()));
  ASSERT_EQ(heard.texts.size(), 1U);
  EXPECT_TRUE(heard.texts[0].starts_with("You are using quantized weights without quantized "))
      << heard.texts[0];
}

TEST(LinearRecipe, CalibrationGathersAndQuantizesNothing) {
  Linear layer(kSize, kSize), plain(layer.weight(), layer.bias());
  const Tensor x = noise({8, kSize}, 0.4, 3.0), dy = noise({8, kSize}, 0.6, 0.25);
  {
    const auto scope = autocast(DelayedScaling{}, {.enabled = false, .calibrating = true});
    EXPECT_TRUE(same_bits(layer.forward(x), plain.forward(x)));
  }
  EXPECT_TRUE(same_bits(layer.backward(dy), plain.backward(dy)));
  EXPECT_TRUE(same_bits(layer.weight_grad(), plain.weight_grad()));
  const auto fwd = layer.quantizers("scaling_fwd")->inv_scale().span<float>(),
             bwd = layer.quantizers("scaling_bwd")->inv_scale().span<float>();
  EXPECT_EQ(fwd[0], 448.0F / amax(x.view()));
  EXPECT_EQ(fwd[1], 448.0F / amax(layer.weight().view()));
  EXPECT_EQ(bwd[0], 57344.0F / amax(dy.view()));
  // The scales are those of the first quantized step.
  const auto scope = autocast(DelayedScaling{});
  (void)layer.forward(x);
  EXPECT_EQ(layer.saved().x_codes.columnwise.scales.span<float>()[0], 1.0F / fwd[0]);
}

TEST(LinearRecipe, CalibrationNeedsNoBackward) {
  Linear layer(kSize, kSize);
  const Tensor x = noise({8, kSize}, 0.4, 3.0);
  {
    const auto scope = autocast(DelayedScaling{}, {.enabled = false, .calibrating = true});
    (void)layer.forward(x, {.training = false});
  }
  EXPECT_EQ(layer.quantizers("scaling_fwd")->inv_scale().span<float>()[0], 448.0F / amax(x.view()));
}

TEST(LinearRecipe, InferenceLeavesDelayedScalingWhereItIs) {
  Linear layer(kSize, kSize);
  train(layer, DelayedScaling{}, 0.1);
  const float before = layer.quantizers("scaling_fwd")->inv_scale().span<float>()[0];
  {
    const auto scope = autocast(DelayedScaling{});
    (void)layer.forward(noise({4, kSize}, 0.2, 100.0), {.training = false});
  }
  EXPECT_EQ(layer.quantizers("scaling_fwd")->inv_scale().span<float>()[0], before);
  EXPECT_EQ(layer.quantizers("scaling_fwd")->amaxes(), (std::vector<float>{0, 0, 0}));
  EXPECT_FALSE(layer.saved().is_filled());
}

// A pass between two steps, or inside the scope of one, leaves no amax that the next step would
// see.
TEST(LinearRecipe, ValidationLeavesNoTrace) {
  Linear layer(kSize, kSize), other(layer.weight(), layer.bias());
  const auto scales = [](const Linear& of, const char* key) {
    const auto set = of.quantizers(key);
    std::vector<float> all(set->amax_history().span<float>().begin(),
                           set->amax_history().span<float>().end());
    all.insert(all.end(), set->inv_scale().span<float>().begin(),
               set->inv_scale().span<float>().end());
    return all;
  };
  const DelayedScaling recipe{.amax_history_len = 4};
  for (int i = 0; i < 3; ++i) {
    const Tensor x = noise({4, kSize}, 0.1 + i), dy = noise({4, kSize}, 0.6 + i);
    for (Linear* at : {&layer, &other}) {
      {
        const auto scope = autocast(recipe);
        (void)at->forward(x);
        if (at == &layer) (void)layer.forward(noise({4, kSize}, 0.2, 100.0), {.training = false});
      }
      (void)at->backward(dy);
    }
    const auto scope = autocast(recipe);
    (void)layer.forward(noise({4, kSize}, 0.2, 100.0), {.training = false});
  }
  for (const char* key : {"scaling_fwd", "scaling_bwd"})
    EXPECT_EQ(scales(layer, key), scales(other, key)) << key;
}

// What a layer of another framework does that is evaluated and goes back all the same.
TEST(LinearRecipe, BackwardOfInferenceMovesNothing) {
  const Tensor x = noise({4, kSize}, 0.3), weight = noise({kSize, kSize}, 0.4);
  ModuleQuantizers quantizers;
  LinearSaved saved;
  {
    const auto scope = autocast(DelayedScaling{});
    LinearCall call{.x = x, .weight = {.values = weight}};
    call.training = false;
    call.quantizers = &quantizers;
    (void)linear_forward(call, &saved);
  }
  ASSERT_TRUE(saved.is_filled());
  EXPECT_EQ(linear_backward(noise({4, kSize}, 0.5), saved).dw.shape(), (Shape{kSize, kSize}));
  for (const auto& set : {quantizers.forward(), quantizers.backward()}) {
    EXPECT_EQ(set->amaxes(), std::vector<float>(set->size(), 0.0F));
    EXPECT_EQ(set->inv_scale().span<float>()[0], 1.0F);
  }
}

TEST(LinearRecipe, TensorCoreSumsArePromotedAsTheRecipeSays) {
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

TEST(LinearRecipe, TensorCoreSumsAreOfFp8) {
  Linear layer(kSize, kSize, {.run = {.accumulator = Accumulator::hopper_fp8}});
  const auto scope = autocast(NVFP4BlockScaling{});
  EXPECT_EQ(error_of([&] {
              (void)layer.forward(noise({4, kSize}, 0.3));
            }),
            std::pair(std::optional(ErrorCode::unsupported),
                      std::string("[Linear] got accumulator hopper_fp8, which multiplies e4m3 and "
                                  "e5m2, and under NVFP4BlockScaling the input is e2m1fn; leave it "
                                  "float32")));
  EXPECT_EQ(layer.quantizers("scaling_fwd"), nullptr);
}

// FP8 has a code for NaN; FP4 has not, so it makes the scale of its tile NaN.
TEST(LinearRecipe, NanShowsUnderEveryRecipe) {
  for (const Recipe& recipe :
       {Recipe(DelayedScaling{}), Recipe(Float8CurrentScaling{}), Recipe(Float8BlockScaling{}),
        Recipe(MXFP8BlockScaling{}), Recipe(NVFP4BlockScaling{})}) {
    Linear layer(kSize, kSize);
    const Tensor x = noise({kSize, kSize}, 0.3);
    x.span<float>()[3 * kSize + 5] = std::numeric_limits<float>::quiet_NaN();
    Tensor y;
    {
      const auto scope = autocast(recipe);
      y = layer.forward(x);
    }
    (void)layer.backward(noise({kSize, kSize}, 0.4));
    for (std::size_t i = 0; i < kSize; ++i) {
      EXPECT_TRUE(std::isnan(y.span<float>()[3 * kSize + i])) << recipe.name();
      EXPECT_FALSE(std::isnan(y.span<float>()[4 * kSize + i])) << recipe.name();
      EXPECT_TRUE(std::isnan(layer.weight_grad().span<float>()[i * kSize + 5])) << recipe.name();
    }
  }
}

TEST(LinearRecipe, AnExceptionInsideAutocastLeavesNothingBehind) {
  Linear layer(kSize, kSize);
  try {
    const auto scope = autocast(DelayedScaling{});
    (void)layer.forward(noise({4, kSize}, 0.2, 100.0));
    throw std::runtime_error("further down the model");
  } catch (const std::runtime_error&) {
  }
  EXPECT_FALSE(current_autocast().enabled);
  EXPECT_EQ(layer.quantizers("scaling_fwd")->amaxes(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(layer.quantizers("scaling_fwd")->inv_scale().span<float>()[0], 1.0F);
  const Tensor x = noise({4, kSize}, 0.2);
  EXPECT_TRUE(same_bits(layer.forward(x), Linear(layer.weight(), layer.bias()).forward(x)));
}

TEST(LinearRecipe, AWarningThatThrowsLeavesTheLayerAsItWas) {
  Linear layer(kSize, kSize, {.warn = [](std::string_view) {
                 throw std::runtime_error("warnings are errors here");
               }});
  train(layer, DelayedScaling{}, 0.1);
  const auto before = layer.quantizers("scaling_fwd");
  EXPECT_THROW(train(layer, MXFP8BlockScaling{}, 0.1), std::runtime_error);
  EXPECT_EQ(layer.quantizers("scaling_fwd"), before);
  EXPECT_FALSE(current_autocast().enabled);
}

TEST(LinearRecipe, AnOutputNobodyGoesBackFromDoesNotFreezeGradientScales) {
  Linear layer(kSize, kSize);
  const Tensor x = noise({kSize, kSize}, 0.3), dy = noise({kSize, kSize}, 0.4);
  LinearSaved used;
  {
    LinearSaved unused;
    {
      const auto scope = autocast(DelayedScaling{});
      (void)layer.forward(x, used);
      (void)layer.forward(x, unused);
    }
    (void)layer.backward(dy, used);
    EXPECT_EQ(layer.quantizers("scaling_bwd")->inv_scale().span<float>()[0], 1.0F);
  }
  EXPECT_EQ(layer.quantizers("scaling_bwd")->inv_scale().span<float>()[0],
            57344.0F / amax(dy.view()));
}

TEST(LinearRecipe, AFrozenLayerInTrainingMovesItsScalesOn) {
  const Tensor x = noise({kSize, kSize}, 0.3), weight = noise({kSize, kSize}, 0.4);
  for (const bool training : {true, false}) {
    ModuleQuantizers quantizers;
    LinearSaved saved;
    {
      const auto scope = autocast(DelayedScaling{});
      LinearCall call{.x = x, .weight = {.values = weight}};
      call.needs = {.dx = false, .dw = false, .db = false};
      call.training = training;
      call.quantizers = &quantizers;
      (void)linear_forward(call, &saved);
    }
    EXPECT_FALSE(saved.is_filled());
    EXPECT_EQ(quantizers.forward()->inv_scale().span<float>()[0],
              training ? 448.0F / amax(x.view()) : 1.0F);
    EXPECT_EQ(quantizers.forward()->inv_scale().span<float>()[1],
              training ? 448.0F / amax(weight.view()) : 1.0F);
  }
}

TEST(LinearRecipe, ATypeThatARecipeDoesNotTakeIsRefusedBeforeAnythingChanges) {
  Heard heard;
  Linear layer(kSize, kSize, heard.options());
  train(layer, DelayedScaling{}, 0.1);
  const auto before = layer.quantizers("scaling_fwd");
  {
    const auto scope = autocast(NVFP4BlockScaling{});
    for (const bool training : {true, false}) {
      const auto [code, message] = error_of([&] {
        (void)layer.forward(noise<double>({kSize, kSize}, 0.3), {.training = training});
      });
      EXPECT_EQ(code, ErrorCode::wrong_type);
      EXPECT_EQ(message,
                "[Linear] x is float64, wanted float32, float16 or bfloat16: under "
                "NVFP4BlockScaling it goes through a Hadamard transform, which is done in "
                "float32; cast x to float32");
    }
  }
  EXPECT_TRUE(heard.texts.empty());
  EXPECT_EQ(layer.quantizers("scaling_fwd"), before);

  const auto scope = autocast(NVFP4BlockScaling{.disable_rht = true});
  EXPECT_NO_THROW((void)layer.forward(noise<double>({kSize, kSize}, 0.3)));
  const auto transformed = autocast(NVFP4BlockScaling{});
  (void)layer.forward(noise({kSize, kSize}, 0.3));
  EXPECT_NE(error_of([&] {
              (void)layer.backward(noise<double>({kSize, kSize}, 0.3));
            }).second.find("[Linear] dy is float64"),
            std::string::npos);
}

}  // namespace
}  // namespace octavo
