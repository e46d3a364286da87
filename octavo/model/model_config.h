// ModelConfig: config.json of a decoder as numbers and choices. A family (Llama, Qwen, Gemma ...)
// is data: what differs between them is a member here, and no code asks for a model's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/nn/mixture_of_experts.h"
#include "octavo/nn/rotary_embedding.h"
#include "octavo/ops/activation.h"

namespace octavo {

// A layer's attention.
struct LayerAttention {
  std::int64_t window = -1;  // keys that a token sees, itself included; negative: all before it
  std::size_t rope = 0;      // index into ModelConfig::ropes
};

struct ExpertsConfig {
  std::int64_t count = 0, top_k = 0;
  std::int64_t intermediate = 0, shared_intermediate = 0;  // 0: no shared expert
  bool shared_gate = false;                                // sigmoid(x . gate) times its output
  bool normalized = false;                                 // chosen weights sum to one
  bool router_bias = false, biases = false;
  RouterKind router = RouterKind::softmax_then_top;
};

struct ModelConfig {
  std::string family{};  // model_type
  std::int64_t vocabulary = 0, hidden = 0, layers = 0;
  std::int64_t heads = 0, kv_heads = 0, head_size = 0, intermediate = 0;
  std::int64_t max_positions = 0;

  double norm_epsilon = 1e-6;
  bool norm_zero_centred = false;  // weights are stored as gamma - 1 (Gemma)
  bool norm_after = false;         // a norm after attention and MLP, too (Gemma)
  bool qk_norm = false;            // over each head, before the rotation
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool sinks = false;  // a learned logit a head that no key has
  ActivationKind activation = ActivationKind::silu;
  // gpt-oss: gate and up clamped to +-limit, gate * sigmoid(alpha * gate) * (up + 1).
  double gate_limit = 0.0, gate_alpha = 0.0;
  double attention_scale = 0.0;                  // of q k
  double attention_cap = 0.0, logits_cap = 0.0;  // cap * tanh(x / cap); 0: none
  double embedding_scale = 1.0;
  bool tied_head = false;

  std::vector<RotaryEmbedding> ropes{};
  std::vector<LayerAttention> attention{};  // one per layer
  std::vector<bool> sparse{};               // one per layer: experts instead of an MLP
  ExpertsConfig experts{};
  std::vector<std::int32_t> eos{};  // tokens that end a text
  std::optional<std::int32_t> bos{};
};

// Throws Error(unsupported) that names the architecture, RoPE type or activation it does not know,
// Error(invalid_argument) for numbers that contradict each other.
[[nodiscard]] OCTAVO_API ModelConfig parse_model_config(const std::string& json_text);
// The model types that parse_model_config knows.
[[nodiscard]] OCTAVO_API std::vector<std::string> model_families();

}  // namespace octavo
