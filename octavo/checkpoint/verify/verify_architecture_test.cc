// Models of each family: complete ones have no findings, and each tensor that is dropped, from one
// layer or from all, is reported.
#include "octavo/checkpoint/verify/architecture_testing_internal.h"

namespace octavo {
namespace {

using namespace verify_testing;
// Names of the tensors that a rule reports.
std::set<std::string> findings_of(const Model& model, std::string_view rule) {
  std::set<std::string> out;
  for (const Finding& one : findings_of(model, {.loaders = {Loader::vllm}}))
    if (one.rule == rule && one.severity == Severity::error) out.insert(one.tensor);
  return out;
}

// One tensor of each kind, so that fewer files are written.
std::vector<std::string> kinds_of_tensors(const Model& model) {
  constexpr std::string_view kFirst = "model.layers.0.";
  std::vector<std::string> out;
  for (const auto& [name, stored] : model.tensors)
    if (!name.starts_with(kFirst) ||
        !model.tensors.contains("model.layers.1." + name.substr(kFirst.size())))
      out.push_back(name);
  return out;
}

TEST(VerifyArchitecture, CompleteModelsHaveNoFindings) {
  for (const auto& [name, kind] : kinds_of_models()) EXPECT_EQ(verdict(written(kind)), "") << name;
}

TEST(VerifyArchitecture, EveryTensorIsMissed) {
  for (const auto& [name, kind] : kinds_of_models()) {
    const Model whole = written(kind);
    for (const std::string& tensor : kinds_of_tensors(whole)) {
      Model model = whole;
      model.tensors.erase(tensor);
      EXPECT_EQ(findings_of(model, "architecture"), std::set<std::string>{tensor}) << name;
    }
    for (const auto& [rest, shape] : kind.of_layer) {  // from every layer
      Model model = whole;
      const std::string first = "model.layers.0." + rest, second = "model.layers.1." + rest;
      model.tensors.erase(first);
      model.tensors.erase(second);
      EXPECT_EQ(findings_of(model, "architecture"), (std::set<std::string>{first, second})) << name;
    }
  }
}

TEST(VerifyArchitecture, EveryShapeIsChecked) {
  for (const auto& [name, kind] : kinds_of_models()) {
    const Model whole = written(kind);
    for (const std::string& tensor : kinds_of_tensors(whole)) {
      Model model = whole;
      Stored& other = model.tensors.at(tensor);
      other.shape.front() += 1;
      std::size_t count = 2;
      for (const std::uint64_t size : other.shape) count *= size;
      other.bytes.assign(count, '\0');
      EXPECT_EQ(findings_of(model, "shapes"), std::set<std::string>{tensor}) << name;
    }
    Model model = whole;
    model.config.set("hidden_size", 16);
    EXPECT_TRUE(findings_of(model, "shapes").contains("model.norm.weight")) << name;
  }
}

TEST(VerifyArchitecture, WhatMayStandForOthers) {
  const std::map<std::string, Kind> all = kinds_of_models();
  Model fused = written(all.at("llama"));
  for (const char* const layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* const part : {"q_proj", "k_proj", "v_proj"})
      fused.tensors.erase(text(layer, "self_attn.", part, ".weight"));
    fused.tensors[text(layer, "self_attn.qkv_proj.weight")] = {
        StoredType::bf16, {16, 8}, std::string(256, '\0')};
  }
  EXPECT_EQ(verdict(fused), "");
  Model stacked = written(all.at("qwen2_moe"));
  std::erase_if(stacked.tensors,
                [](const auto& one) { return one.first.find(".experts.") != std::string::npos; });
  for (const char* const layer : {"model.layers.0.", "model.layers.1."}) {
    stacked.tensors[text(layer, "mlp.experts.gate_up_proj")] = {
        StoredType::bf16, {2, 8, 8}, std::string(256, '\0')};
    stacked.tensors[text(layer, "mlp.experts.down_proj")] = {
        StoredType::bf16, {2, 8, 4}, std::string(128, '\0')};
  }
  EXPECT_EQ(verdict(stacked), "");
  // The language model of a larger model, and a model that is no causal LM.
  Kind inner = all.at("llama");
  inner.config = Json::object({{"model_type", "seer"},
                               {"architectures", Json::array({"SeerForConditionalGeneration"})},
                               {"text_config", inner.config}});
  EXPECT_EQ(verdict(written(inner)), "");
  Kind bare = all.at("llama");
  bare.config.set("architectures", Json::array({"LlamaModel"}));
  bare.of_model.erase("lm_head.weight");
  EXPECT_EQ(verdict(written(bare)), "");
  Kind draft = bare;  // has one layer, and shares the target model's embedding
  draft.config.set("architectures", Json::array({"LlamaForCausalLMEagle3"}));
  draft.of_model.clear();
  EXPECT_EQ(verdict(written(draft)), "");
}

TEST(VerifyArchitecture, SizesThatAreNoneAndTensorsThatAreEmpty) {
  const Kind llama = kinds_of_models().at("llama");
  for (const Json& value : {Json(-5), Json(0), Json("8"), Json(0.5), Json(std::int64_t{1} << 53),
                            Json(std::int64_t{1} << 31)}) {
    for (const char* const key : {"num_attention_heads", "hidden_size", "num_key_value_heads"}) {
      Model model = written(llama);
      model.config.set(key, value);
      EXPECT_EQ(verdict(model, {.loaders = {Loader::vllm}}), "config:vllm") << value.dump();
    }
  }
  Model model = written(llama);
  model.config.remove("intermediate_size");
  EXPECT_EQ(verdict(model), "");
  const std::string up = "model.layers.0.mlp.up_proj.weight";
  model.tensors.at(up) = {StoredType::bf16, {0, 8}, ""};
  EXPECT_EQ(findings_of(model, "shapes"), std::set<std::string>{up});
}

// The numbers are untrusted.
TEST(VerifyArchitecture, ConfigsThatAreAbsurd) {
  for (const char* const key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_experts", "vocab_size"})
    for (const Json& value : {Json(-1), Json(0), Json(std::int64_t{1} << 62), Json("x"), Json(),
                              Json::array({1}), Json(0.5)}) {
      Kind kind = kinds_of_models().at("qwen2_moe");
      kind.config.set(key, value);
      (void)findings_of(written(kind), {.loaders = {Loader::vllm}});
    }
}

}  // namespace
}  // namespace octavo
