// Expected tensors of a model architecture: names and shapes that follow from config.json, as the
// loaders' modeling code asks for them. Known for the model types below; nothing is claimed of
// others.
//   llama, mistral, qwen2, qwen3, qwen2_moe, qwen3_moe, mixtral, deepseek_v2, deepseek_v3
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"

namespace octavo {

struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // 0: config.json does not determine it
  // The tensor that may replace it and others: a fused matrix (qkv_proj, gate_up_proj) or an expert
  // stack. Empty: none.
  std::string instead;
  std::int64_t layer = -1;  // -1: outside the layers
};

// The prefix of the language model's layers, from the tensor names of a checkpoint: "model." of
// "model.layers.0.mlp.up_proj.weight". nullopt where there are no layers.
[[nodiscard]] std::optional<std::string> model_prefix(const std::set<std::string>& names);

struct Architecture {
  std::string model_type{};
  std::string prefix{};      // of the names that loaders look for: "model."
  std::int64_t layers = 0;   // num_hidden_layers of config.json; 0 where it has none
  std::int64_t experts = 0;  // experts per layer, the same way
  bool generates = false;    // a causal LM with an lm_head, not a part of a larger model
  // Only for layers that the checkpoint has, and for expert numbers that occur in any layer.
  std::vector<ExpectedTensor> tensors{};

  // The index of the layer that a tensor is in; -1 where it is in none.
  [[nodiscard]] std::int64_t layer_of(std::string_view name) const;
  // True for a tensor of a layer or an expert beyond the counts in config.json.
  [[nodiscard]] bool is_beyond(std::string_view name) const;
};
// nullopt for an unknown model type. `names` are tensor names of the unquantized model; they
// determine the prefix, and the number of layers where config.json has none.
[[nodiscard]] std::optional<Architecture> expected_tensors(const Json& config,
                                                           const std::set<std::string>& names);

// Contradictions within one config.json: values that are not sizes, head counts that do not divide,
// two model types. Each as "num_experts_per_tok 9, of 8 experts".
[[nodiscard]] std::vector<std::string> contradictions_of(const Json& config);

// The type that config.json declares for the model's numbers, "float32"; empty where it has none.
[[nodiscard]] std::string_view declared_dtype(const Json& config);

// The class in `architectures` where it does not belong to the known family of model_type:
// "BertModel" for a 'qwen3_moe'. Empty where it does, or where the family is unknown.
[[nodiscard]] std::string_view foreign_architecture(const Json& config);

}  // namespace octavo
