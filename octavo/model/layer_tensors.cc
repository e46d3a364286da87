// The tensors of a layer: their names and shapes.
#include "octavo/base/error.h"
#include "octavo/model/layer_builder_internal.h"

namespace octavo {

std::vector<LayerBuilder::Matrix> LayerBuilder::attention_matrices(const std::string& at) const {
  const std::string inside = at + "self_attn.";
  const std::int64_t q = config_.heads * config_.head_size,
                     kv = config_.kv_heads * config_.head_size, hidden = config_.hidden;
  const Matrix out{inside + "o_proj", hidden, q, config_.output_bias};
  if (files_.has(inside + "qkv_proj.weight"))
    return {{inside + "qkv_proj", q + 2 * kv, hidden, config_.qkv_bias}, out};
  return {{inside + "q_proj", q, hidden, config_.qkv_bias},
          {inside + "k_proj", kv, hidden, config_.qkv_bias},
          {inside + "v_proj", kv, hidden, config_.qkv_bias},
          out};
}

std::vector<LayerBuilder::Matrix> LayerBuilder::mlp_matrices(const std::string& at,
                                                             std::int64_t mid) const {
  const std::int64_t hidden = config_.hidden;
  const bool bias = config_.mlp_bias;
  const Matrix down{at + "down_proj", hidden, mid, bias};
  if (files_.has(at + "gate_up_proj.weight"))
    return {{at + "gate_up_proj", 2 * mid, hidden, bias}, down};
  return {{at + "gate_proj", mid, hidden, bias}, {at + "up_proj", mid, hidden, bias}, down};
}

std::vector<std::pair<std::string, std::int64_t>> LayerBuilder::norms(const std::string& at) const {
  std::vector<std::pair<std::string, std::int64_t>> out{
      {at + "input_layernorm.weight", config_.hidden},
      {at + "post_attention_layernorm.weight", config_.hidden}};
  if (config_.norm_after) {
    out.emplace_back(at + "pre_feedforward_layernorm.weight", config_.hidden);
    out.emplace_back(at + "post_feedforward_layernorm.weight", config_.hidden);
  }
  if (config_.qk_norm) {
    out.emplace_back(at + "self_attn.q_norm.weight", config_.head_size);
    out.emplace_back(at + "self_attn.k_norm.weight", config_.head_size);
  }
  if (config_.sinks) out.emplace_back(at + "self_attn.sinks", config_.heads);
  return out;
}

// Mixtral's files have another name for the module.
std::string LayerBuilder::experts_at(const std::string& at) const {
  const std::string other = at + "block_sparse_moe.";
  return files_.has(other + "gate.weight") ? other : at + "mlp.";
}

LayerBuilder::Matrix LayerBuilder::router(const std::string& at) const {
  const bool bias = config_.experts.router_bias;
  return {at + (bias ? "router" : "gate"), config_.experts.count, config_.hidden, bias};
}

bool LayerBuilder::has_stack(const std::string& at) const {
  return files_.has(at + "experts.gate_up_proj");
}

std::vector<LayerBuilder::Matrix> LayerBuilder::expert_matrices(const std::string& at,
                                                                std::int64_t expert) const {
  const std::string inside = text(at, "experts.", expert, ".");
  const bool mixtral = files_.has(inside + "w1.weight");
  const std::int64_t mid = config_.experts.intermediate, hidden = config_.hidden;
  return {{inside + (mixtral ? "w1" : "gate_proj"), mid, hidden},
          {inside + (mixtral ? "w3" : "up_proj"), mid, hidden},
          {inside + (mixtral ? "w2" : "down_proj"), hidden, mid}};
}

void LayerBuilder::check_matrix(const Matrix& matrix, std::int64_t& bytes) const {
  const std::string weight = matrix.module + ".weight", bias = matrix.module + ".bias";
  files_.check_shape(weight, {matrix.out, matrix.in});
  bytes += files_.nbytes_of(weight);
  if (matrix.bias || files_.has(bias)) {
    files_.check_shape(bias, {matrix.out});
    bytes += files_.nbytes_of(bias);
  }
}

std::int64_t LayerBuilder::check_layer(std::int64_t index) const {
  const std::string at = text(prefix_, "layers.", index, ".");
  std::int64_t bytes = 0;
  for (const auto& [name, size] : norms(at)) {
    files_.check_shape(name, {size});
    bytes += files_.nbytes_of(name);
  }
  for (const Matrix& matrix : attention_matrices(at)) check_matrix(matrix, bytes);
  if (!config_.sparse[static_cast<std::size_t>(index)]) {
    for (const Matrix& matrix : mlp_matrices(at + "mlp.", config_.intermediate))
      check_matrix(matrix, bytes);
    return bytes;
  }
  const std::string inside = experts_at(at);
  check_matrix(router(inside), bytes);
  if (has_stack(inside)) {
    for (const Stack& stack : stacks(inside)) check_stack(stack, bytes);
  } else {
    for (std::int64_t expert = 0; expert < config_.experts.count; ++expert)
      for (const Matrix& matrix : expert_matrices(inside, expert)) check_matrix(matrix, bytes);
  }
  if (config_.experts.shared_intermediate > 0)
    for (const Matrix& matrix :
         mlp_matrices(inside + "shared_expert.", config_.experts.shared_intermediate))
      check_matrix(matrix, bytes);
  if (config_.experts.shared_gate)
    check_matrix({inside + "shared_expert_gate", 1, config_.hidden}, bytes);
  return bytes;
}

// Experts of a stack have the names that their own matrices would have.
std::vector<LayerInput> LayerBuilder::inputs(std::int64_t index) const {
  const std::string at = text(prefix_, "layers.", index, ".");
  std::vector<LayerInput> out;
  const auto add = [&](const std::vector<Matrix>& matrices) {
    for (const Matrix& matrix : matrices) out.push_back({matrix.module, matrix.in});
  };
  add(attention_matrices(at));
  if (!config_.sparse[static_cast<std::size_t>(index)]) {
    add(mlp_matrices(at + "mlp.", config_.intermediate));
    return out;
  }
  const std::string inside = experts_at(at);
  const ExpertsConfig& experts = config_.experts;
  add({router(inside)});
  for (std::int64_t expert = 0; expert < experts.count; ++expert)
    add(expert_matrices(inside, expert));
  if (experts.shared_intermediate > 0)
    add(mlp_matrices(inside + "shared_expert.", experts.shared_intermediate));
  if (experts.shared_gate) add({{inside + "shared_expert_gate", 1, config_.hidden}});
  return out;
}

}  // namespace octavo
