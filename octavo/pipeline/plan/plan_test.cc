#include "octavo/pipeline/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
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

TEST_F(PlanTest, AdaptersAndStateSpacesStayWithANote) {
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/model.safetensors"),
                {random_tensor("backbone.layers.0.mixer.in_proj.weight", {256, 128}, 1),
                 random_tensor("backbone.layers.0.mixer.x_proj.weight", {128, 128}, 2),
                 random_tensor("backbone.layers.0.mixer.out_proj.weight", {128, 128}, 3),
                 random_tensor("base_model.model.q_proj.lora_A.weight", {128, 128}, 4)});
  const auto actions = by_name();
  EXPECT_TRUE(actions.at("backbone.layers.0.mixer.out_proj.weight").quantize);
  EXPECT_EQ(actions.at("backbone.layers.0.mixer.in_proj.weight").why, "of a state-space layer");
  EXPECT_EQ(actions.at("base_model.model.q_proj.lora_A.weight").why, "of a LoRA adapter");
  const std::vector<std::string> notes = plan().notes;
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_TRUE(has(notes[0], "1 matrix of a LoRA adapter left alone")) << notes[0];
  EXPECT_TRUE(has(notes[1], "2 matrices of state-space layers (Mamba) left alone")) << notes[1];
  // Who names them has them quantized.
  EXPECT_TRUE(
      by_name({.include = {"lora_A"}}).at("base_model.model.q_proj.lora_A.weight").quantize);
}

TEST_F(PlanTest, SaysWhatCannotBeAndWhatHelps) {
  write_model();
  const auto refusal_of = [&](const QuantizePlanOptions& options) {
    return message_of([&] { (void)plan(options); }, ErrorCode::unsupported);
  };
  // Nothing that include finds can be quantized.
  const std::string norm = refusal_of({.include = {"layers.0.input_layernorm"}});
  EXPECT_TRUE(has(norm, "it has 1 dimension, and only matrices")) << norm;
  EXPECT_FALSE(has(norm, "another recipe")) << norm;  // no recipe would apply
  // Nothing to quantize: by the user's options, or because no tensor has a known role.
  for (const QuantizePlanOptions& options :
       {QuantizePlanOptions{.exclude = {"proj"}},
        QuantizePlanOptions{.recipe_for = {{"proj", "none"}}}}) {
    const QuantizePlan nothing = plan(options);
    EXPECT_TRUE(has(nothing.notes.back(), "excluded, or has the recipe none"));
  }
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

TEST_F(PlanTest, IncludePassesOverNormsAndBiasesWithANote) {
  std::filesystem::create_directory(root / "model");
  TestTensor table{{"layers.0.table", safetensors::StoredType::i64, {2, 2}}, {}};
  table.bytes.resize(32);
  write_tensors(path("model/model.safetensors"),
                {random_tensor("layers.0.o_proj.weight", {256, 256}, 1),
                 random_tensor("layers.0.o_proj.bias", {256}, 2),
                 random_tensor("layers.0.norm.weight", {256}, 3),
                 random_tensor("layers.0.conv.weight", {4, 4, 3, 3}, 4), table});
  const QuantizePlan whole = plan({.recipe = "mxfp8", .include = {"layers.0"}});
  EXPECT_EQ(whole.model.weights.size(), 1U);
  for (const char* const note : {"'layers.0.o_proj.bias' stays unquantized: it has 1 dimension",
                                 "'layers.0.norm.weight' stays unquantized: it has 1 dimension",
                                 "'layers.0.conv.weight' stays unquantized: it has 4 dimensions",
                                 "'layers.0.table' stays unquantized: it holds I64"})
    EXPECT_TRUE(std::any_of(whole.notes.begin(), whole.notes.end(), [&](const std::string& one) {
      return has(one, note);
    })) << note;
  const auto actions = by_name({.recipe = "mxfp8", .include = {"layers.0"}});
  EXPECT_EQ(actions.at("layers.0.norm.weight").left, SkipReason::no_weight);
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

// Servers fuse q, k and v: they cannot load a file with one of them unquantized.
TEST_F(PlanTest, WhatServersLoadAsOneIsDecidedAsOne) {
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/model.safetensors"),
                {random_tensor("l.0.self_attn.q_proj.weight", {256, 256}, 1),
                 random_tensor("l.0.self_attn.k_proj.weight", {64, 256}, 2),
                 random_tensor("l.0.self_attn.v_proj.weight", {64, 256}, 3),
                 random_tensor("l.0.self_attn.o_proj.weight", {256, 256}, 4),
                 random_tensor("l.0.mlp.experts.0.up_proj.weight", {256, 256}, 5),
                 random_tensor("l.0.mlp.experts.1.up_proj.weight", {256, 256}, 6),
                 random_tensor("l.0.mlp.experts.1.down_proj.weight", {256, 200}, 7)});
  const auto actions = by_name({.recipe = "fp8-block"});
  const TensorAction& q = actions.at("l.0.self_attn.q_proj.weight");
  EXPECT_FALSE(q.quantize);
  EXPECT_EQ(q.left, SkipReason::with_its_group);
  EXPECT_TRUE(has(q.why, "k_proj") && has(q.why, "multiples of 128")) << q.why;
  EXPECT_EQ(actions.at("l.0.self_attn.k_proj.weight").left, SkipReason::impossible);
  EXPECT_TRUE(actions.at("l.0.self_attn.o_proj.weight").quantize);
  EXPECT_EQ(actions.at("l.0.mlp.experts.0.up_proj.weight").left, SkipReason::with_its_group);
  // The ignore list names all of them.
  EXPECT_EQ(plan({.recipe = "fp8-block"}).model.plain_modules.size(), 6U);
  // No loader that fuses reads octavo's own dialect.
  EXPECT_TRUE(by_name({.recipe = "fp8-block", .target = Dialect::octavo})
                  .at("l.0.self_attn.q_proj.weight")
                  .quantize);
  const auto excluded = by_name({.recipe = "fp8-channel", .exclude = {"k_proj"}});
  EXPECT_EQ(excluded.at("l.0.self_attn.v_proj.weight").left, SkipReason::with_its_group);
  EXPECT_TRUE(excluded.at("l.0.mlp.experts.0.up_proj.weight").quantize);
  const std::string named =
      message_of([&] { (void)plan({.recipe = "fp8-channel", .include = {"q_proj"}}); },
                 ErrorCode::unsupported);
  EXPECT_TRUE(has(named, "q_proj") && has(named, "k_proj") && has(named, "option include"))
      << named;
  const std::string two = message_of(
      [&] {
        (void)plan({.recipe = "fp8-channel", .recipe_for = {{"v_proj", "mxfp8"}}});
      },
      ErrorCode::unsupported);
  EXPECT_TRUE(has(two, "mxfp8") && has(two, "fp8-channel") && has(two, "option recipe_for")) << two;
}

// DeepSeek's kv_a_proj_with_mqa has 576 rows; it is the last part of what servers fuse.
TEST_F(PlanTest, TheLastPartOfAFusedMatrixMayBeRagged) {
  std::filesystem::create_directory(root / "model");
  write_tensors(path("model/model.safetensors"),
                {random_tensor("l.0.self_attn.q_a_proj.weight", {256, 256}, 1),
                 random_tensor("l.0.self_attn.kv_a_proj_with_mqa.weight", {576, 256}, 2)});
  for (const Dialect target : {Dialect::deepseek, Dialect::compressed_tensors}) {
    const auto actions = by_name({.recipe = "fp8-block", .target = target});
    const TensorAction& kv = actions.at("l.0.self_attn.kv_a_proj_with_mqa.weight");
    ASSERT_TRUE(kv.quantize) << kv.why;
    EXPECT_EQ(kv.outputs[1].plan.shape, (std::vector<std::uint64_t>{5, 2}));
  }
}

TEST_F(PlanTest, AnExpressionThatFindsNothing) {
  write_model();
  const std::string refused = message_of(
      [&] {
        (void)plan({.include = {"down_proj", "dwon_proj"}});
      },
      ErrorCode::invalid_argument);
  EXPECT_TRUE(has(refused, "option include: 'dwon_proj'")) << refused;
  const QuantizePlan noted = plan({.recipe = "fp8-channel", .exclude = {"dwon_proj"}});
  ASSERT_EQ(noted.notes.size(), 1U);
  EXPECT_TRUE(has(noted.notes[0], "option exclude: 'dwon_proj'"));
}

TEST_F(PlanTest, TheRuleOfMxfp4) {
  write_model();
  const auto rule = [&](const QuantizePlanOptions& options) {
    return by_name(options).at("model.layers.0.mlp.up_proj.weight").weight.scaling.scale.rule;
  };
  EXPECT_EQ(rule({.recipe = "mxfp4"}), ScaleRule::even);
  EXPECT_EQ(rule({.recipe = "mxfp4", .scale_rule = "rceil"}), ScaleRule::rceil);
  EXPECT_EQ(rule({.recipe = "mxfp4", .target = Dialect::octavo, .arith = "modelopt"}),
            ScaleRule::rceil);
  EXPECT_EQ(rule({.recipe = "mxfp8", .recipe_for = {{"mlp", "mxfp4"}}}), ScaleRule::even);
  EXPECT_EQ(rule({.recipe = "mxfp8"}), ScaleRule::rceil);
}

// A user who asks for a recipe does not want an unquantized copy of the model.
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
    for (const DialectTensor& output : action.outputs) {
      std::uint64_t bytes =
          static_cast<std::uint64_t>(safetensors::stored_bits(output.plan.type)) / 8;
      for (const std::uint64_t size : output.plan.shape) bytes *= size;
      filled[action.file] += bytes;
    }
  for (const std::uint64_t bytes : filled) EXPECT_LE(bytes, 500'000U);
}

// transformers' Conv1D stores [in, out]: tiles would run along the wrong dimension, even if
// included by name.
TEST_F(PlanTest, WeightsThatLieTheOtherWayAreRefusedByName) {
  write_tensors(save("model/model.safetensors", ""),
                {random_tensor("h.0.attn.c_attn.weight", {128, 384}, 1),
                 random_tensor("h.0.mlp.c_fc.weight", {128, 512}, 2)});
  save("model/config.json", R"({"model_type": "gpt2"})");
  for (const Dialect target : {Dialect::compressed_tensors, Dialect::octavo}) {
    const std::string message = message_of(
        [&] { (void)plan({.target = target, .include = {"c_attn"}}); }, ErrorCode::unsupported);
    EXPECT_TRUE(has(message, "h.0.attn.c_attn.weight") && has(message, "stored as [in, out]"))
        << message;
  }
  const QuantizePlan nothing = plan();
  ASSERT_FALSE(nothing.notes.empty());
  EXPECT_TRUE(has(nothing.notes.back(), "stored as [in, out]")) << nothing.notes.back();
  EXPECT_FALSE(has(nothing.notes.back(), "name some")) << nothing.notes.back();
}

// Loaders use the embedding for a tied head, whatever the file has.
TEST_F(PlanTest, ATiedHeadIsRefusedByName) {
  write_model();
  save("model/config.json", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})");
  EXPECT_TRUE(by_name({.include = {"lm_head|proj"}}).at("lm_head.weight").quantize);
  for (const char* const config :
       {R"({"model_type": "llama", "tie_word_embeddings": true})",
        R"({"model_type": "llava", "text_config": {"tie_word_embeddings": true}})"}) {
    save("model/config.json", config);
    const std::string message =
        message_of([&] { (void)plan({.include = {"lm_head|proj"}}); }, ErrorCode::unsupported);
    EXPECT_TRUE(has(message, "lm_head.weight") && has(message, "tie_word_embeddings")) << message;
    EXPECT_FALSE(by_name().at("lm_head.weight").quantize);
  }
}

}  // namespace
}  // namespace octavo
