// Attention under recipes: the same bits as quant and ops called by hand, and the state it keeps.
#include "octavo/nn/linear/attention_pass.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "octavo/nn/linear/nn_testing_internal.h"

namespace octavo {
namespace {

const Shape kQueries{2, 4, 12, 32}, kKeys{2, 2, 20, 32};

struct Inputs {
  Tensor q = noise(kQueries, 0.31), k = noise(kKeys, 0.57), v = noise(kKeys, 0.83, 3.0);

  [[nodiscard]] AttentionPassCall call(ModuleQuantizers& quantizers) const {
    AttentionPassCall made{.q = q.view(), .k = k.view(), .v = v.view()};
    made.options.rung = AttentionRung::f32;
    made.options.mask.causal = true;
    made.quantizers = &quantizers;
    return made;
  }
};

// What is called while a recipe holds.
AttentionPassResult forward(const Inputs& inputs, ModuleQuantizers& quantizers,
                            const Recipe& recipe, bool training = true) {
  const auto scope = autocast(recipe);
  AttentionPassCall call = inputs.call(quantizers);
  call.training = training;
  return attention_forward(call);
}

struct Case {
  std::string name;
  Recipe recipe;
  std::shared_ptr<Quantizer> quantizer;
};

std::vector<Case> cases() {
  return {{"current", Float8CurrentScaling{.fp8_dpa = true},
           std::make_shared<Float8CurrentScalingQuantizer>(
               Float8CurrentScalingOptions{.columnwise = false})},
          {"mxfp8", MXFP8BlockScaling{.fp8_dpa = true},
           std::make_shared<MXFP8Quantizer>(MXFP8Options{.columnwise = false})}};
}

TEST(AttentionPass, ARecipeThatDoesNotAskChangesNothing) {
  const Inputs inputs;
  const Tensor want = attention(inputs.q, inputs.k, inputs.v,
                                {.rung = AttentionRung::f32, .mask = {.causal = true}});
  const std::vector<Recipe> recipes{MXFP8BlockScaling{}, DelayedScaling{}, NVFP4BlockScaling{}};
  for (const Recipe& recipe : recipes) {
    ModuleQuantizers quantizers(attention_quantizers());
    const AttentionPassResult got = forward(inputs, quantizers, recipe);
    EXPECT_TRUE(same_bits(got.out, want)) << recipe.name();
    EXPECT_FALSE(got.is_fp8);
    EXPECT_EQ(quantizers.forward(), nullptr);
  }
  ModuleQuantizers quantizers(attention_quantizers());
  EXPECT_TRUE(same_bits(attention_forward(inputs.call(quantizers)).out, want));  // no scope
}

TEST(AttentionPass, BitsAreThoseOfQuantizersAndAttention) {
  const Inputs inputs;
  for (const Case& one : cases()) {
    for (const AttentionRung rung : {AttentionRung::fast, AttentionRung::strict}) {
      ModuleQuantizers quantizers(attention_quantizers());
      const auto scope = autocast(one.recipe);
      AttentionPassCall call = inputs.call(quantizers);
      call.fp8_rung = rung;
      const AttentionPassResult got = attention_forward(call);
      const QuantizedTensor q = one.quantizer->quantize(inputs.q.view()),
                            k = one.quantizer->quantize(inputs.k.view()),
                            v = one.quantizer->quantize(inputs.v.view());
      const Tensor want =
          attention(q, k, v, {.rung = rung, .mask = {.causal = true}, .out = DType::f32});
      EXPECT_TRUE(same_bits(got.out, want)) << one.name << ", " << name_of(rung);
      EXPECT_TRUE(same_bits(got.q.rowwise.codes, q.rowwise.codes));
      EXPECT_TRUE(same_bits(got.v.rowwise.scales, v.rowwise.scales));
      EXPECT_EQ(got.output_quantizers, nullptr);
    }
  }
}

TEST(AttentionPass, DelayedScalingMovesOnInTrainingAlone) {
  const Inputs inputs;
  ModuleQuantizers quantizers(attention_quantizers());
  const Recipe recipe = DelayedScaling{.amax_history_len = 2, .fp8_dpa = true};
  (void)forward(inputs, quantizers, recipe);
  const std::shared_ptr<QuantizerSet> set = quantizers.forward();
  EXPECT_EQ(set->size(), 5U);
  EXPECT_EQ(quantizers.backward(), nullptr);
  const auto largest = [](const Tensor& tensor) { return amax(tensor.view()); };
  const std::span<const float> history = set->amax_history().span<float>().subspan(5);
  EXPECT_EQ(history[0], largest(inputs.q));
  EXPECT_EQ(history[1], largest(inputs.k));
  EXPECT_EQ(history[2], largest(inputs.v));
  EXPECT_NEAR(history[3], 1.0F, 0x1p-9F);  // the first row sees one key
  EXPECT_EQ(history[4], 0.0F);             // the output stays values
  EXPECT_EQ(set->inv_scale().span<float>()[2], 448.0F / largest(inputs.v));
  const std::vector<float> before(history.begin(), history.end());
  const Inputs larger{.q = noise(kQueries, 0.31, 50.0)};
  (void)forward(larger, quantizers, recipe, false);
  EXPECT_EQ(std::vector<float>(history.begin(), history.end()), before);
  EXPECT_EQ(set->amaxes(), std::vector<float>(5, 0.0F));
}

TEST(AttentionPass, CalibrationGathersAndQuantizesNothing) {
  const Inputs inputs;
  ModuleQuantizers quantizers(attention_quantizers());
  const Recipe recipe = DelayedScaling{.fp8_mha = true};
  AttentionPassResult got;
  {
    const auto scope = autocast(recipe, {.enabled = false, .calibrating = true});
    AttentionPassCall call = inputs.call(quantizers);
    call.training = false;
    got = attention_forward(call);
  }
  EXPECT_FALSE(got.is_fp8);
  const std::span<const float> scales = quantizers.forward()->inv_scale().span<float>();
  EXPECT_EQ(scales[0], 448.0F / amax(inputs.q.view()));
  EXPECT_EQ(scales[4], 448.0F / amax(got.out.view()));
}

TEST(AttentionPass, OutputsAreCodesWhereTheRecipeSaysSo) {
  const Inputs inputs;
  ModuleQuantizers quantizers(attention_quantizers());
  const auto scope = autocast(MXFP8BlockScaling{.fp8_mha = true});
  const AttentionPassCall call = inputs.call(quantizers);
  const AttentionPassResult got = attention_forward(call);
  ASSERT_NE(got.output_quantizers, nullptr);
  const QuantizedTensor codes = attention_output_codes(call, got, got.out.view());
  MXFP8Quantizer quantizer({.columnwise = false});
  EXPECT_TRUE(same_bits(codes.rowwise.codes, quantizer.quantize(got.out.view()).rowwise.codes));
  EXPECT_FALSE(codes.columnwise.exists());
}

TEST(AttentionPass, WhatCannotBeIsRefusedBeforeAnythingChanges) {
  const Inputs inputs;
  ModuleQuantizers quantizers(attention_quantizers());
  const auto [code, message] =
      error_of([&] { (void)forward(inputs, quantizers, NVFP4BlockScaling{.fp8_dpa = true}); });
  EXPECT_EQ(code, ErrorCode::unsupported);
  EXPECT_NE(message.find("the recipe is NVFP4BlockScaling with fp8_dpa"), std::string::npos);
  const Recipe recipe = MXFP8BlockScaling{.fp8_dpa = true};
  const Inputs wrong{.k = noise({2, 2, 7, 32}, 0.5)};
  EXPECT_EQ(error_of([&] { (void)forward(wrong, quantizers, recipe); }).first,
            ErrorCode::invalid_argument);
  EXPECT_EQ(quantizers.forward(), nullptr);
  const auto scope = autocast(recipe);
  AttentionPassCall call = inputs.call(quantizers);
  call.fp8_rung = AttentionRung::bf16;
  EXPECT_EQ(error_of([&] { (void)attention_forward(call); }).first, ErrorCode::invalid_argument);
  call.fp8_rung = AttentionRung::fast;
  call.quantizers = nullptr;
  EXPECT_EQ(error_of([&] { (void)attention_forward(call); }).first, ErrorCode::invalid_argument);
  const AttentionPassResult none;
  EXPECT_EQ(error_of([&] { (void)attention_output_codes(call, none, inputs.q.view()); }).first,
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace octavo
