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

#include "octavo/base/json.h"

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
  std::string model_type;
  // Of the layers that are there, and of the experts that any of them has.
  std::vector<ExpectedTensor> tensors;
};
// Nothing for a family that is not known. `names` are those of the unquantized model; they decide
// what the prefix is, and how many layers there are where config.json does not say.
[[nodiscard]] std::optional<Architecture> expected_tensors(const Json& config,
                                                           const std::set<std::string>& names);

// What cannot be in one config.json: numbers that are no sizes, heads that do not divide what they
// share, two kinds of model. Each as "num_experts_per_tok 9, of 8 experts".
[[nodiscard]] std::vector<std::string> contradictions_of(const Json& config);

}  // namespace octavo
