// Which tensors a model has, from its config.json: names and shapes that the code of loaders asks
// for. Known for the families below; nothing is said of others.
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
  std::vector<std::int64_t> shape;  // 0 where config.json does not say
  // What may stand for it and others: a fused matrix, or a stack of experts. Empty: nothing.
  std::string instead;
  std::int64_t layer = -1;  // -1: of the model
};

// Where the layers of the language model are, by the names of a checkpoint: "model." of
// "model.layers.0.mlp.up_proj.weight". Nothing where there are none.
[[nodiscard]] std::optional<std::string> model_prefix(const std::set<std::string>& names);

struct Architecture {
  std::string model_type{};
  std::string prefix{};      // where loaders look for it: "model."
  std::int64_t layers = 0;   // as config.json says; 0 where it does not
  std::int64_t experts = 0;  // of a layer, the same
  bool generates = false;    // it is a model by itself, with a head: there is nothing beside it
  // Of the layers that are there, and of the experts that any of them has.
  std::vector<ExpectedTensor> tensors{};

  // The number of the layer that a tensor is in; -1 where it is in none.
  [[nodiscard]] std::int64_t layer_of(std::string_view name) const;
  // Of a layer or an expert that config.json does not have.
  [[nodiscard]] bool is_beyond(std::string_view name) const;
};
// Nothing for a family that is not known. `names` are those of the unquantized model; they decide
// what the prefix is, and how many layers there are where config.json does not say.
[[nodiscard]] std::optional<Architecture> expected_tensors(const Json& config,
                                                           const std::set<std::string>& names);

// What cannot be in one config.json: numbers that are no sizes, heads that do not divide what they
// share, two kinds of model. Each as "num_experts_per_tok 9, of 8 experts".
[[nodiscard]] std::vector<std::string> contradictions_of(const Json& config);

// The code that `architectures` asks for where it is none of a family that is known by model_type:
// "BertModel" of a 'qwen3_moe'. Empty where it is, or where nobody can say.
[[nodiscard]] std::string_view foreign_code(const Json& config);

}  // namespace octavo
