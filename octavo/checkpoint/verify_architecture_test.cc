// Models as their families have them: complete ones have no findings, and each tensor is missed
// that is dropped, from one layer or from all. Names and sizes are written out here, and not made
// from a config.
#include "octavo/checkpoint/verify_testing_internal.h"

namespace octavo {
namespace {

using namespace verify_testing;
using Sizes = std::vector<std::uint64_t>;
using Tensors = std::map<std::string, Sizes>;

struct Kind {
  Json config;
  Tensors of_model, of_layer;    // of every layer
  std::map<int, Tensors> extra;  // of one layer
};

Json config_of(std::string_view type, std::vector<Json::Member> more) {
  Json config = Json::object({{"model_type", type},
                              {"architectures", Json::array({"XForCausalLM"})},
                              {"hidden_size", 8},
                              {"intermediate_size", 12},
                              {"num_hidden_layers", 2},
                              {"num_attention_heads", 4},
                              {"num_key_value_heads", 2},
                              {"vocab_size", 10}});
  for (auto& [key, value] : more) config.set(key, value);
  return config;
}

Tensors operator+(Tensors a, const Tensors& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Tensors kModel{{"model.embed_tokens.weight", {10, 8}}, {"model.norm.weight", {8}}};
const Tensors kHead{{"lm_head.weight", {10, 8}}};
const Tensors kNorms{{"input_layernorm.weight", {8}}, {"post_attention_layernorm.weight", {8}}};
const Tensors kAttention{{"self_attn.q_proj.weight", {8, 8}},
                         {"self_attn.k_proj.weight", {4, 8}},
                         {"self_attn.v_proj.weight", {4, 8}},
                         {"self_attn.o_proj.weight", {8, 8}}};
const Tensors kQkvBias{
    {"self_attn.q_proj.bias", {8}}, {"self_attn.k_proj.bias", {4}}, {"self_attn.v_proj.bias", {4}}};
const Tensors kWideAttention{
    {"self_attn.q_proj.weight", {24, 8}}, {"self_attn.k_proj.weight", {12, 8}},
    {"self_attn.v_proj.weight", {12, 8}}, {"self_attn.o_proj.weight", {8, 24}},
    {"self_attn.q_norm.weight", {6}},     {"self_attn.k_norm.weight", {6}}};
const Tensors kMlp{{"mlp.gate_proj.weight", {12, 8}},
                   {"mlp.up_proj.weight", {12, 8}},
                   {"mlp.down_proj.weight", {8, 12}}};

Tensors experts(const std::string& at, std::array<std::string, 3> names, std::uint64_t mid) {
  Tensors out;
  for (const char* const expert : {"experts.0.", "experts.1."}) {
    out[at + expert + names[0] + ".weight"] = {mid, 8};
    out[at + expert + names[1] + ".weight"] = {mid, 8};
    out[at + expert + names[2] + ".weight"] = {8, mid};
  }
  return out;
}
const std::array<std::string, 3> kGateUpDown{"gate_proj", "up_proj", "down_proj"};

std::map<std::string, Kind> kinds_of_models() {
  std::map<std::string, Kind> out;
  out["llama"] = {config_of("llama", {}), kModel + kHead, kNorms + kAttention + kMlp, {}};
  out["llama, tied"] = {
      config_of("llama", {{"tie_word_embeddings", true}}), kModel, kNorms + kAttention + kMlp, {}};
  out["llama with biases"] = {
      config_of("llama", {{"attention_bias", true}}),
      kModel + kHead,
      kNorms + kAttention + kMlp + kQkvBias + Tensors{{"self_attn.o_proj.bias", {8}}},
      {}};
  out["qwen2"] = {
      config_of("qwen2", {}), kModel + kHead, kNorms + kAttention + kMlp + kQkvBias, {}};
  out["qwen3"] = {
      config_of("qwen3", {{"head_dim", 6}}), kModel + kHead, kNorms + kWideAttention + kMlp, {}};
  const Tensors moe = experts("mlp.", kGateUpDown, 4) + Tensors{{"mlp.gate.weight", {2, 8}}};
  out["qwen3_moe"] = {config_of("qwen3_moe", {{"head_dim", 6},
                                              {"num_experts", 2},
                                              {"moe_intermediate_size", 4},
                                              {"mlp_only_layers", Json::array({0})}}),
                      kModel + kHead,
                      kNorms + kWideAttention,
                      {{0, kMlp}, {1, moe}}};
  out["qwen2_moe"] = {config_of("qwen2_moe", {{"num_experts", 2},
                                              {"moe_intermediate_size", 4},
                                              {"shared_expert_intermediate_size", 6}}),
                      kModel + kHead,
                      kNorms + kAttention + kQkvBias + moe +
                          Tensors{{"mlp.shared_expert.gate_proj.weight", {6, 8}},
                                  {"mlp.shared_expert.up_proj.weight", {6, 8}},
                                  {"mlp.shared_expert.down_proj.weight", {8, 6}},
                                  {"mlp.shared_expert_gate.weight", {1, 8}}},
                      {}};
  out["mixtral"] = {config_of("mixtral", {{"num_local_experts", 2}}),
                    kModel + kHead,
                    kNorms + kAttention + experts("block_sparse_moe.", {"w1", "w3", "w2"}, 12) +
                        Tensors{{"block_sparse_moe.gate.weight", {2, 8}}},
                    {}};
  out["deepseek_v3"] = {config_of("deepseek_v3", {{"q_lora_rank", 3},
                                                  {"kv_lora_rank", 5},
                                                  {"qk_nope_head_dim", 2},
                                                  {"qk_rope_head_dim", 1},
                                                  {"v_head_dim", 2},
                                                  {"n_routed_experts", 2},
                                                  {"n_shared_experts", 2},
                                                  {"moe_intermediate_size", 4},
                                                  {"first_k_dense_replace", 1}}),
                        kModel + kHead,
                        kNorms + Tensors{{"self_attn.q_a_proj.weight", {3, 8}},
                                         {"self_attn.q_a_layernorm.weight", {3}},
                                         {"self_attn.q_b_proj.weight", {12, 3}},
                                         {"self_attn.kv_a_proj_with_mqa.weight", {6, 8}},
                                         {"self_attn.kv_a_layernorm.weight", {5}},
                                         {"self_attn.kv_b_proj.weight", {16, 5}},
                                         {"self_attn.o_proj.weight", {8, 8}}},
                        {{0, kMlp},
                         {1, moe + Tensors{{"mlp.gate.e_score_correction_bias", {2}},
                                           {"mlp.shared_experts.gate_proj.weight", {8, 8}},
                                           {"mlp.shared_experts.up_proj.weight", {8, 8}},
                                           {"mlp.shared_experts.down_proj.weight", {8, 8}}}}}};
  return out;
}

Model written(const Kind& kind) {
  Model model{.dialect = kCt, .config = kind.config};
  const auto add = [&](const std::string& name, const Sizes& shape) {
    std::size_t count = 1;
    for (const std::uint64_t size : shape) count *= size;
    model.tensors[name] = {StoredType::bf16, shape, std::string(2 * count, '\0')};
  };
  for (const auto& [name, shape] : kind.of_model) add(name, shape);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string at = text("model.layers.", layer, ".");
    for (const auto& [name, shape] : kind.of_layer) add(at + name, shape);
    if (const auto more = kind.extra.find(layer); more != kind.extra.end())
      for (const auto& [name, shape] : more->second) add(at + name, shape);
  }
  model.metadata = {{"format", "pt"}};
  return model;
}

// Names of the tensors that a rule speaks of.
std::set<std::string> said(const Model& model, std::string_view rule) {
  std::set<std::string> out;
  for (const Finding& one : findings_of(model, {.loaders = {Loader::vllm}}))
    if (one.rule == rule && one.severity == Severity::error) out.insert(one.tensor);
  return out;
}

// Each tensor that no other layer has a like of, so that there are fewer files to write.
std::vector<std::string> kinds_of_tensors(const Model& model) {
  constexpr std::string_view kFirst = "model.layers.0.";
  std::vector<std::string> out;
  for (const auto& [name, stored] : model.tensors)
    if (!name.starts_with(kFirst) ||
        !model.tensors.contains("model.layers.1." + name.substr(kFirst.size())))
      out.push_back(name);
  return out;
}

TEST(VerifyArchitecture, complete_models_have_no_findings) {
  for (const auto& [name, kind] : kinds_of_models()) EXPECT_EQ(verdict(written(kind)), "") << name;
}

TEST(VerifyArchitecture, every_tensor_is_missed) {
  for (const auto& [name, kind] : kinds_of_models()) {
    const Model whole = written(kind);
    for (const std::string& tensor : kinds_of_tensors(whole)) {
      Model model = whole;
      model.tensors.erase(tensor);
      EXPECT_EQ(said(model, "architecture"), std::set<std::string>{tensor}) << name;
    }
    for (const auto& [rest, shape] : kind.of_layer) {  // from every layer
      Model model = whole;
      const std::string first = "model.layers.0." + rest, second = "model.layers.1." + rest;
      model.tensors.erase(first);
      model.tensors.erase(second);
      EXPECT_EQ(said(model, "architecture"), (std::set<std::string>{first, second})) << name;
    }
  }
}

TEST(VerifyArchitecture, every_shape_is_looked_at) {
  for (const auto& [name, kind] : kinds_of_models()) {
    const Model whole = written(kind);
    for (const std::string& tensor : kinds_of_tensors(whole)) {
      Model model = whole;
      Stored& other = model.tensors.at(tensor);
      other.shape.front() += 1;
      std::size_t count = 2;
      for (const std::uint64_t size : other.shape) count *= size;
      other.bytes.assign(count, '\0');
      EXPECT_EQ(said(model, "shapes"), std::set<std::string>{tensor}) << name;
    }
    Model model = whole;
    model.config.set("hidden_size", 16);
    EXPECT_TRUE(said(model, "shapes").contains("model.norm.weight")) << name;
  }
}

TEST(VerifyArchitecture, what_may_stand_for_others) {
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
  // The language model of something larger, and one that generates nothing.
  Kind inner = all.at("llama");
  inner.config = Json::object({{"model_type", "seer"},
                               {"architectures", Json::array({"SeerForConditionalGeneration"})},
                               {"text_config", inner.config}});
  EXPECT_EQ(verdict(written(inner)), "");
  Kind bare = all.at("llama");
  bare.config.set("architectures", Json::array({"LlamaModel"}));
  bare.of_model.erase("lm_head.weight");
  EXPECT_EQ(verdict(written(bare)), "");
  Kind draft = bare;  // has one layer, and the model's own embedding
  draft.config.set("architectures", Json::array({"LlamaForCausalLMEagle3"}));
  draft.of_model.clear();
  EXPECT_EQ(verdict(written(draft)), "");
}

TEST(VerifyArchitecture, sizes_that_are_none_and_tensors_that_are_empty) {
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
  EXPECT_EQ(said(model, "shapes"), std::set<std::string>{up});
}

// Numbers come from a file.
TEST(VerifyArchitecture, configs_that_are_absurd) {
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
