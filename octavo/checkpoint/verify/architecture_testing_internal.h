// Test models of each family. Names and sizes are written out, not derived from a config.
#pragma once

#include <array>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/verify/verify_testing_internal.h"

namespace octavo::verify_testing {

using Sizes = std::vector<std::uint64_t>;
using Tensors = std::map<std::string, Sizes>;

struct Kind {
  Json config;
  Tensors of_model, of_layer;    // of_layer: in every layer
  std::map<int, Tensors> extra;  // in one layer only
};

inline Json config_of(std::string_view type, std::vector<Json::Member> more) {
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

inline Tensors operator+(Tensors a, const Tensors& b) {
  a.insert(b.begin(), b.end());
  return a;
}

inline const Tensors kModel{{"model.embed_tokens.weight", {10, 8}}, {"model.norm.weight", {8}}};
inline const Tensors kHead{{"lm_head.weight", {10, 8}}};
inline const Tensors kNorms{{"input_layernorm.weight", {8}},
                            {"post_attention_layernorm.weight", {8}}};
inline const Tensors kAttention{{"self_attn.q_proj.weight", {8, 8}},
                                {"self_attn.k_proj.weight", {4, 8}},
                                {"self_attn.v_proj.weight", {4, 8}},
                                {"self_attn.o_proj.weight", {8, 8}}};
inline const Tensors kQkvBias{
    {"self_attn.q_proj.bias", {8}}, {"self_attn.k_proj.bias", {4}}, {"self_attn.v_proj.bias", {4}}};
inline const Tensors kWideAttention{
    {"self_attn.q_proj.weight", {24, 8}}, {"self_attn.k_proj.weight", {12, 8}},
    {"self_attn.v_proj.weight", {12, 8}}, {"self_attn.o_proj.weight", {8, 24}},
    {"self_attn.q_norm.weight", {6}},     {"self_attn.k_norm.weight", {6}}};
inline const Tensors kMlp{{"mlp.gate_proj.weight", {12, 8}},
                          {"mlp.up_proj.weight", {12, 8}},
                          {"mlp.down_proj.weight", {8, 12}}};

inline Tensors experts(const std::string& at, std::array<std::string, 3> names, std::uint64_t mid) {
  Tensors out;
  for (const char* const expert : {"experts.0.", "experts.1."}) {
    out[at + expert + names[0] + ".weight"] = {mid, 8};
    out[at + expert + names[1] + ".weight"] = {mid, 8};
    out[at + expert + names[2] + ".weight"] = {8, mid};
  }
  return out;
}
inline const std::array<std::string, 3> kGateUpDown{"gate_proj", "up_proj", "down_proj"};

inline std::map<std::string, Kind> kinds_of_models() {
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

inline Model written(const Kind& kind) {
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

}  // namespace octavo::verify_testing
