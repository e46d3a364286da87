// The role of a tensor in its model (Linear, embedding, lm_head, norm, router ...), from its name,
// its shape and config.json: what may be quantized, what every recipe leaves unquantized, and what
// servers fuse (QKV, gate_up) and so need one scale for. Names are the only evidence; callers
// override by include and exclude patterns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/checkpoint/checkpoint_reader.h"

namespace octavo {

enum class Role : std::uint8_t {
  linear,        // the weight [out, in] of a Linear
  expert_stack,  // all experts of a layer in one tensor
  embedding,     // a table lookup, not a product
  head,          // lm_head, and other output heads
  norm,
  bias,
  router,       // MoE gate: small, and a wrong choice of experts costs much
  conv,         // convolutions and patch embeddings
  position,     // position embeddings
  vision,       // of a vision or audio tower: few weights, and loaders keep them unquantized
  adapter,      // of a LoRA adapter: small, and added to a weight that loaders have already
  state_space,  // projections into a state-space recurrence (Mamba), where errors add up
  other,
};

struct ModelTensorRole {
  Role role = Role::other;
  std::string why{};  // why it stays unquantized; empty for linear and expert_stack
  // Why it can never be quantized although it is a Linear's matrix, or "".
  std::string_view never{};
};

[[nodiscard]] ModelTensorRole role_of(std::string_view name,
                                      const std::vector<std::uint64_t>& shape, const Json& config);

// "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight".
[[nodiscard]] std::string_view module_of(std::string_view name);

// "model.layers.0.mlp.experts" of "model.layers.0.mlp.experts.down_proj": the module that holds an
// expert stack among its parameters; loaders match this name against the ignore list.
[[nodiscard]] std::string_view holder_of(std::string_view name);

// Tensors with the same key are fused into one matrix by servers, or are the experts of one layer:
// q/k/v, gate/up, w1/w3, MLA's q_a/kv_a. Empty: not fused.
[[nodiscard]] std::string fusion_key(std::string_view module);

// Tensors with the same key are loaded together: all with one scheme, or all unquantized. Fused
// matrices, and all matrices of a layer's experts. Empty: not grouped.
[[nodiscard]] std::string group_key(std::string_view module);

// The position of its rows in the fused matrix. Only the last part may end within a block.
enum class FusedPlace : std::uint8_t {
  alone,
  inner,            // another part follows, or it belongs to an expert
  last,             // of q/k/v or gate/up
  replicated_last,  // of MLA's q_a/kv_a, which tensor parallelism replicates
};
[[nodiscard]] FusedPlace fused_place(std::string_view module);

// Natural sort order: "layers.10" after "layers.9".
[[nodiscard]] bool natural_less(std::string_view a, std::string_view b);

}  // namespace octavo
