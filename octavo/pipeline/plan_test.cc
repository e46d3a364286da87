#include "octavo/pipeline/plan.h"

#include <gtest/gtest.h>

#include <map>

#include "octavo/pipeline/pipeline_testing_internal.h"

namespace octavo {
namespace {

class PlanTest : public PipelineTest {
 protected:
  [[nodiscard]] QuantizePlan plan(const QuantizePlanOptions& options = {}) const {
    return plan_quantize(CheckpointReader(path("model")), options);
  }
  [[nodiscard]] std::map<std::string, TensorAction> by_name(
      const QuantizePlanOptions& options = {}) const {
    const CheckpointReader source(path("model"));
    std::map<std::string, TensorAction> out;
    for (const TensorAction& action : plan_quantize(source, options).actions)
      out[action.quantize ? action.weight.name : source.tensors()[action.tensor].name()] = action;
    return out;
  }
};

TEST_F(PlanTest, LeavesAloneWhatIsNoLinear) {
  write_model();
  const auto actions = by_name();
  EXPECT_EQ(actions.size(), 18U);
  EXPECT_TRUE(actions.at("model.layers.0.mlp.up_proj.weight").quantize);
  for (const char* const name :
       {"model.embed_tokens.weight", "lm_head.weight", "model.layers.0.mlp.gate.weight",
        "model.layers.1.input_layernorm.weight"}) {
    EXPECT_FALSE(actions.at(name).quantize) << name;
    EXPECT_FALSE(actions.at(name).why.empty()) << name;
  }
  const QuantizePlan whole = plan();
  EXPECT_EQ(whole.model.weights.size(), 12U);
  EXPECT_EQ(
      whole.model.plain_modules,
      (std::vector<std::string>{"lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"}));
  EXPECT_EQ(whole.files.size(), 2U);
  EXPECT_EQ(whole.index_name, "model.safetensors.index.json");
}

TEST_F(PlanTest, SizesAreExact) {
  write_model();
  const QuantizePlan whole = plan({.recipe = "mxfp8"});
  const std::uint64_t weights = 2 * (256 * 256 + 2 * 128 * 256 + 3 * 1280 * 256);
  EXPECT_EQ(whole.bytes_before - whole.bytes_after, weights * 2 - weights - weights / 32);
  EXPECT_DOUBLE_EQ(whole.bits_per_weight, 8.25);
}

TEST_F(PlanTest, SharesOnlyWhatHasOneScale) {
  write_model();
  const auto group = [](const std::map<std::string, TensorAction>& actions, const char* name) {
    return actions.at(std::string("model.layers.0.") + name + ".weight").group;
  };
  for (const char* const name : {"fp8", "nvfp4"}) {
    const auto actions = by_name({.recipe = name});
    EXPECT_GE(group(actions, "self_attn.q_proj"), 0);
    EXPECT_EQ(group(actions, "self_attn.q_proj"), group(actions, "self_attn.v_proj"));
    EXPECT_EQ(group(actions, "mlp.gate_proj"), group(actions, "mlp.up_proj"));
    EXPECT_NE(group(actions, "mlp.gate_proj"), group(actions, "self_attn.q_proj"));
    EXPECT_EQ(group(actions, "mlp.down_proj"), -1);
  }
  EXPECT_EQ(group(by_name({.recipe = "fp8", .share = false}), "self_attn.q_proj"), -1);
  EXPECT_EQ(group(by_name({.recipe = "fp8-channel"}), "self_attn.q_proj"), -1);
}

TEST_F(PlanTest, IncludeExcludeAndRecipeFor) {
  write_model();
  auto actions = by_name({.recipe = "fp8-channel",
                          .exclude = {"layers\\.0\\."},
                          .recipe_for = {{"down_proj", "none"}, {"_proj", "mxfp8"}}});
  EXPECT_EQ(actions.at("model.layers.0.mlp.up_proj.weight").why, "excluded");
  EXPECT_EQ(actions.at("model.layers.1.mlp.down_proj.weight").why, "recipe none");
  EXPECT_EQ(actions.at("model.layers.1.mlp.up_proj.weight").preset, "mxfp8");
  actions = by_name({.recipe = "fp8-channel", .include = {"lm_head"}});
  EXPECT_TRUE(actions.at("lm_head.weight").quantize);
  EXPECT_FALSE(actions.at("model.layers.0.mlp.up_proj.weight").quantize);
  EXPECT_TRUE(has(message_of([&] { (void)plan({.include = {"("}}); }, ErrorCode::invalid_argument),
                  "regular expression"));
}

TEST_F(PlanTest, RaggedShapesArePlannedAroundUnlessTheyWereNamed) {
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/model.safetensors"), {random_tensor("a.q_proj.weight", {256, 256}, 1),
                                                  random_tensor("b.q_proj.weight", {200, 256}, 1)});
  const QuantizePlan whole = plan({.recipe = "fp8-block", .target = Dialect::deepseek});
  EXPECT_EQ(whole.model.weights.size(), 1U);
  ASSERT_EQ(whole.notes.size(), 1U);
  EXPECT_TRUE(has(whole.notes[0], "b.q_proj.weight"));
  EXPECT_EQ(whole.model.plain_modules, std::vector<std::string>{"b.q_proj"});
  const std::string refused = message_of(
      [&] { (void)plan({.recipe = "fp8-block", .target = Dialect::deepseek, .include = {"b"}}); },
      ErrorCode::unsupported);
  EXPECT_TRUE(has(refused, "b.q_proj.weight") && has(refused, "exclude")) << refused;
}

// A copy of the whole model is not what somebody wanted who asked for a recipe.
TEST_F(PlanTest, ATargetThatCanHoldNoWeightIsAnError) {
  write_model();
  const std::string refused = message_of(
      [&] { (void)plan({.recipe = "fp8", .target = Dialect::deepseek}); }, ErrorCode::unsupported);
  EXPECT_TRUE(has(refused, "deepseek") && has(refused, "another target or recipe")) << refused;
}

TEST_F(PlanTest, OptionsThatDoNotFitAreErrors) {
  write_model();
  EXPECT_FALSE(
      message_of([&] { (void)plan({.recipe = "fp9"}); }, ErrorCode::invalid_argument).empty());
  EXPECT_FALSE(message_of([&] { (void)plan({.recipe = "nvfp4", .format = "e5m2"}); },
                          ErrorCode::invalid_argument)
                   .empty());
  EXPECT_TRUE(has(message_of([&] { (void)plan({.recipe = "fp8", .scale_policy = "mse"}); },
                             ErrorCode::unsupported),
                  "whole tensor"));
  const auto actions =
      by_name({.recipe = "fp8-block", .target = Dialect::deepseek, .scale_format = "e8m0"});
  EXPECT_EQ(actions.at("model.layers.0.mlp.up_proj.weight").weight.scaling.scale.rule,
            ScaleRule::rceil);
}

TEST_F(PlanTest, ScalesHaveThePrecisionOfBf16) {
  write_model();
  const char* const name = "model.layers.0.mlp.up_proj.weight";
  EXPECT_EQ(by_name({.recipe = "fp8-channel"}).at(name).scaling.scale.format, ScaleFormat::bf16);
  EXPECT_EQ(by_name({.recipe = "fp8-channel"}).at(name).weight.scaling.scale.format,
            ScaleFormat::f32);
  EXPECT_EQ(by_name({.recipe = "fp8-channel", .bf16_scales = false}).at(name).scaling.scale.format,
            ScaleFormat::f32);
  EXPECT_EQ(by_name({.recipe = "mxfp8"}).at(name).scaling.scale.format, ScaleFormat::e8m0);
}

TEST_F(PlanTest, QuantizedInputIsRefused) {
  std::filesystem::create_directory(root / "model");
  TestTensor codes = random_tensor("a.weight", {64, 64}, 1);
  codes.plan.type = safetensors::StoredType::f8_e4m3;
  codes.bytes.resize(64 * 64);
  write_tensors(path("model/model.safetensors"), {codes});
  EXPECT_TRUE(has(message_of([&] { (void)plan(); }, ErrorCode::invalid_argument), "dequantize"));
}

TEST_F(PlanTest, NamesThatWouldCollideAreAnError) {
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/model.safetensors"), {random_tensor("a.q_proj.weight", {128, 128}, 1),
                                                  random_tensor("a.q_proj.weight.scales", {1}, 1)});
  EXPECT_NE(message_of([&] { (void)plan({.recipe = "fp8-channel", .target = Dialect::octavo}); },
                       ErrorCode::invalid_argument),
            "");
}

TEST_F(PlanTest, StacksOfExpertsAreTakenApart) {
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/model.safetensors"),
                {random_tensor("l.0.mlp.experts.gate_up_proj", {2, 64, 256}, 1),
                 random_tensor("l.0.mlp.experts.down_proj", {2, 128, 64}, 2)});
  const auto actions = by_name({.recipe = "mxfp8"});
  EXPECT_EQ(actions.size(), 6U);
  const TensorAction& up = actions.at("l.0.mlp.experts.1.up_proj.weight");
  EXPECT_EQ(up.weight.shape, (Shape{128, 64}));
  EXPECT_TRUE(up.part.transposed && up.part.matrix == 1 && up.part.first == 128);
  EXPECT_EQ(actions.at("l.0.mlp.experts.0.down_proj.weight").weight.shape, (Shape{64, 128}));
}

TEST_F(PlanTest, FilesOfAGivenSize) {
  write_model();
  const QuantizePlan whole = plan({.recipe = "fp8-channel", .shard_bytes = 500'000});
  EXPECT_GT(whole.files.size(), 2U);
  EXPECT_EQ(whole.files.front(), text("model-00001-of-0000", whole.files.size(), ".safetensors"));
  std::vector<std::uint64_t> filled(whole.files.size());
  for (const TensorAction& action : whole.actions)
    for (const SpelledTensor& output : action.outputs) {
      std::uint64_t bytes =
          static_cast<std::uint64_t>(safetensors::stored_bits(output.plan.type)) / 8;
      for (const std::uint64_t size : output.plan.shape) bytes *= size;
      filled[action.file] += bytes;
    }
  for (const std::uint64_t bytes : filled) EXPECT_LE(bytes, 500'000U);
}

}  // namespace
}  // namespace octavo
