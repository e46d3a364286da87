#include <algorithm>
#include <cstring>

#include "octavo/base/error.h"
#include "octavo/model/expert_stacks_internal.h"
#include "octavo/model/layer_builder_internal.h"
#include "octavo/nn/converted_internal.h"

namespace octavo {
namespace {

bool has_codes(const FrozenLinear& linear) { return linear.weight.codes != nullptr; }

// Rows one after another.
Tensor stacked(const std::vector<FrozenLinear>& parts) {
  std::int64_t rows = 0;
  for (const FrozenLinear& part : parts) rows += part.out();
  Tensor all = Tensor::values({rows, parts.front().in()}, parts.front().weight.values.dtype());
  auto* to = all.bytes().data();
  for (const FrozenLinear& part : parts) {
    const auto bytes = part.weight.values.bytes();
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
  return all;
}

Tensor stacked_biases(const std::vector<FrozenLinear>& parts) {
  std::int64_t rows = 0;
  for (const FrozenLinear& part : parts) rows += part.out();
  Tensor all = Tensor::values({rows}, DType::f32);
  float* to = all.span<float>().data();
  for (const FrozenLinear& part : parts) {
    if (part.bias.owner() == nullptr) {
      std::fill_n(to, part.out(), 0.0F);
    } else {
      std::ranges::copy(part.bias.span<float>(), to);
    }
    to += part.out();
  }
  return all;
}

}  // namespace

NormLayer LayerBuilder::norm(const std::string& name) const {
  return {.kind = NormKind::rms,
          .weight = files_.values(name + ".weight"),
          .epsilon = config_.norm_epsilon,
          .zero_centred = config_.norm_zero_centred};
}

FrozenLinear LayerBuilder::packed(FrozenLinear linear) const {
  // Packed weights pay where the input is codes too, or bf16: f32 is multiplied in f32.
  const bool has_f32_input = !linear.input.scaling && linear.input.values == DType::f32;
  if (!options_.pack || has_f32_input || !linear.weight.codes) return linear;
  linear.packed = std::make_shared<const PackedWeights>(
      pack(*linear.weight.codes, {.threads = options_.threads}));
  linear.weight = {};
  return linear;
}

InputQuantization LayerBuilder::input_of(const std::string& weight) const {
  InputQuantization out = files_.input_of(weight);
  if (!out.scaling) out.values = options_.activations;
  return out;
}

FrozenLinear LayerBuilder::linear(const Matrix& matrix) const {
  const std::string weight = matrix.module + ".weight", bias = matrix.module + ".bias";
  files_.check_shape(weight, {matrix.out, matrix.in});
  FrozenLinear out{
      .modules = {matrix.module}, .weight = files_.weight(weight), .input = input_of(weight)};
  if (matrix.bias) files_.check_shape(bias, {matrix.out});
  if (files_.has(bias)) out.bias = converted(files_.values(bias).view(), DType::f32, "model");
  return out;
}

std::vector<FrozenLinear> LayerBuilder::joined(const std::vector<Matrix>& matrices) const {
  std::vector<FrozenLinear> parts;
  for (const Matrix& matrix : matrices) parts.push_back(linear(matrix));
  const bool can_join = parts.size() > 1 && std::ranges::none_of(parts, has_codes) &&
                        std::ranges::all_of(parts, [&](const FrozenLinear& part) {
                          return part.weight.values.dtype() == parts[0].weight.values.dtype();
                        });
  if (!can_join) {
    for (FrozenLinear& part : parts) part = packed(std::move(part));
    return parts;
  }
  FrozenLinear one{.weight = {.values = stacked(parts)}, .input = parts.front().input};
  if (std::ranges::any_of(parts, [](const auto& part) { return part.bias.owner() != nullptr; }))
    one.bias = stacked_biases(parts);
  for (const FrozenLinear& part : parts) one.modules.push_back(part.modules.front());
  std::vector<FrozenLinear> out;
  out.push_back(std::move(one));
  return out;
}

MultiheadAttention LayerBuilder::attention(const std::string& at, std::int64_t index) const {
  const LayerAttention& choice = config_.attention[static_cast<std::size_t>(index)];
  const std::vector<Matrix> matrices = attention_matrices(at);
  MultiheadAttention out{
      .module = at + "self_attn",
      .heads = config_.heads,
      .kv_heads = config_.kv_heads,
      .head_size = config_.head_size,
      .scale = config_.attention_scale,
      .window = choice.window,
      .soft_cap = config_.attention_cap,
      .rung = options_.activations == DType::bf16 ? AttentionRung::bf16 : AttentionRung::f32,
      .rope = ropes_[choice.rope]};
  out.qkv = joined({matrices.begin(), matrices.end() - 1});
  out.out = packed(linear(matrices.back()));
  if (config_.qk_norm) {
    out.q_norm = norm(at + "self_attn.q_norm");
    out.k_norm = norm(at + "self_attn.k_norm");
  }
  if (config_.sinks) {
    const std::string name = at + "self_attn.sinks";
    files_.check_shape(name, {config_.heads});
    out.sinks = converted(files_.values(name).view(), DType::f32, "model");
  }
  return out;
}

MlpActivation LayerBuilder::activation() const {
  return {.kind = config_.activation,
          .gate_limit = config_.gate_limit,
          .gate_alpha = config_.gate_alpha};
}

Mlp LayerBuilder::mlp(const std::string& at, std::int64_t mid) const {
  const std::vector<Matrix> matrices = mlp_matrices(at, mid);
  Mlp out{.activation = activation()};
  out.up = joined({matrices.begin(), matrices.end() - 1});
  out.down = packed(linear(matrices.back()));
  return out;
}

MixtureOfExperts LayerBuilder::experts(const std::string& at) const {
  const ExpertsConfig& experts = config_.experts;
  const std::string inside = experts_at(at);
  const Matrix router_matrix = router(inside);
  MixtureOfExperts out{.module = router_matrix.module,
                       .kind = experts.router,
                       .top_k = experts.top_k,
                       .normalized = experts.normalized,
                       .activation = activation()};
  out.router = linear(router_matrix);
  has_stack(inside) ? take_stacks(inside, out) : take_matrices(inside, out);
  if (experts.shared_intermediate > 0)
    out.shared = mlp(inside + "shared_expert.", experts.shared_intermediate);
  if (experts.shared_gate)
    out.shared_gate =
        linear({.module = inside + "shared_expert_gate", .out = 1, .in = config_.hidden});
  return out;
}

TransformerLayer LayerBuilder::build(std::int64_t index) const {
  (void)check_layer(index);
  const std::string at = text(prefix_, "layers.", index, ".");
  TransformerLayer out;
  out.attention_norm = norm(at + "input_layernorm");
  if (config_.norm_after) {
    out.after_attention_norm = norm(at + "post_attention_layernorm");
    out.mlp_norm = norm(at + "pre_feedforward_layernorm");
    out.after_mlp_norm = norm(at + "post_feedforward_layernorm");
  } else {
    out.mlp_norm = norm(at + "post_attention_layernorm");
  }
  out.attention = attention(at, index);
  if (config_.sparse[static_cast<std::size_t>(index)]) {
    out.mlp = experts(at);
  } else {
    out.mlp = mlp(at + "mlp.", config_.intermediate);
  }
  return out;
}

}  // namespace octavo
