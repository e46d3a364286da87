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
  const std::map<std::string_view, const char*> codes{
      {"llama", "LlamaForCausalLM"},           {"qwen2", "Qwen2ForCausalLM"},
      {"qwen3", "Qwen3ForCausalLM"},           {"qwen2_moe", "Qwen2MoeForCausalLM"},
      {"qwen3_moe", "Qwen3MoeForCausalLM"},    {"mixtral", "MixtralForCausalLM"},
      {"deepseek_v3", "DeepseekV3ForCausalLM"}};
  Json config = Json::object({{"model_type", type},
                              {"architectures", Json::array({codes.at(type)})},
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

// "rule:loader" of the errors alone.
std::string errors(const Model& model) {
  std::set<std::string> out;
  for (const Finding& one : findings_of(model))
    if (one.severity == Severity::error) out.insert(one.rule + ":" + one.loader);
  return joined(out);
}

Model renamed(const Model& model, std::string_view from, std::string_view to) {
  Model out = model;
  out.tensors.clear();
  for (const auto& [name, tensor] : model.tensors) {
    std::string other = name;
    if (const std::size_t at = other.find(from); at != std::string::npos)
      other.replace(at, from.size(), to);
    out.tensors[other] = tensor;
  }
  return out;
}

TEST(VerifyArchitecture, layers_that_no_loader_finds) {
  for (const auto& [name, kind] : kinds_of_models()) {
    const Model whole = written(kind);
    Model none = whole;
    std::erase_if(none.tensors,
                  [](const auto& one) { return one.first.find("layers.") != std::string::npos; });
    constexpr std::string_view kLayers =
        "layers:sglang layers:transformers layers:trtllm layers:vllm";
    EXPECT_EQ(verdict(none), kLayers) << name;
    none.config.remove("num_hidden_layers");
    EXPECT_EQ(verdict(none), kLayers) << name;
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {"model.", "foo."},
             {"model.", "foo.bar.model."},
             {"layers.", "blocks."},
             {"layers.0.", "layers.00."},
             {"self_attn.", "self_attm."},
             {"model.layers.", "model.model.layers."}}) {
      const std::string found = errors(renamed(whole, from, to));
      for (const char* const loader : {"sglang", "transformers", "trtllm", "vllm"})
        EXPECT_TRUE(found.find(std::string("layers:") + loader) != std::string::npos ||
                    found.find(std::string("architecture:") + loader) != std::string::npos)
            << name << ": " << from << " as " << to << ": " << found;
    }
    // Saved without a head's name before it: transformers puts it there.
    EXPECT_EQ(errors(renamed(whole, "model.", "")),
              "architecture:sglang architecture:trtllm architecture:vllm")
        << name;
    Model bare = renamed(whole, "model.", "");
    bare.tensors.erase("lm_head.weight");
    Json code = bare.config["architectures"].elements().front();
    std::string_view text = code.string_or("");
    text.remove_suffix(std::string_view("ForCausalLM").size());
    bare.config.set("architectures", Json::array({std::string(text) + "Model"}));
    EXPECT_EQ(verdict(bare), "") << name;
  }
}

TEST(VerifyArchitecture, tensors_that_the_model_does_not_have) {
  const auto said_of = [](const Kind& kind, const std::string& extra) {
    Model model = written(kind);
    model.tensors[extra] = {StoredType::bf16, {2, 2}, std::string(8, '\0')};
    std::string out;
    for (const Finding& one : findings_of(model)) {
      EXPECT_EQ(one.severity, Severity::warning) << one.message;
      EXPECT_EQ(one.tensor, extra);
      out += text(out.empty() ? "" : " ", one.rule, ":", one.loader);
    }
    return out;
  };
  constexpr std::string_view kSaid =
      "unknown-tensors:vllm unknown-tensors:transformers unknown-tensors:sglang "
      "unknown-tensors:trtllm";
  for (const auto& [name, kind] : kinds_of_models()) {
    for (const char* const extra :
         {"junk.weight", "model.layers.0.junk", "model.layers.1.self_attn.x_proj.weight",
          "model.layers.1.mlp.up_projx.bias", "x.layers.0.self_attn.q_proj.weight",
          "model.layers.00.mlp.up_proj.weight"})
      EXPECT_EQ(said_of(kind, extra), kSaid) << name << extra;
    // What other rules speak of, what is computed anew, and the head of a model that shares one.
    for (const char* const extra :
         {"model.layers.0.self_attn.k_scale", "model.layers.0.mlp.down_proj.input_scale",
          "model.layers.0.self_attn.rotary_emb.inv_freq"})
      EXPECT_EQ(said_of(kind, extra), "") << name << extra;
  }
  const std::map<std::string, Kind> all = kinds_of_models();
  Model tied = written(all.at("llama"));
  tied.config.set("tie_word_embeddings", true);
  EXPECT_EQ(verdict(tied), "");
  // A tower beside a language model, another head, and layers that guess the next token.
  Kind inner = all.at("llama");
  inner.config = Json::object({{"model_type", "seer"},
                               {"architectures", Json::array({"SeerForConditionalGeneration"})},
                               {"text_config", inner.config}});
  EXPECT_EQ(said_of(inner, "vision_tower.patch.weight"), "");
  Kind classifier = all.at("llama");
  classifier.of_model.erase("lm_head.weight");
  classifier.config.set("architectures", Json::array({"LlamaForSequenceClassification"}));
  EXPECT_EQ(said_of(classifier, "score.weight"), "");
  Kind guessing = all.at("deepseek_v3");
  guessing.config.set("num_nextn_predict_layers", 1);
  EXPECT_EQ(said_of(guessing, "model.layers.2.eh_proj.weight"), "");
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
