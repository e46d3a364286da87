// What a tensor is to its model, from its name, its shape and config.json: what may be quantized,
// what every recipe leaves alone, and what servers fuse into one matrix and so want one scale for.
// Names are all there is to go by; who knows better includes or excludes them by name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/base/macros.h"
#include "octavo/checkpoint/checkpoint_reader.h"

namespace octavo {

enum class Role : std::uint8_t {
  linear,        // a matrix [out, in] that activations are multiplied by
  expert_stack,  // the same for all experts of a layer, in one tensor
  embedding,     // looked up, not multiplied
  head,          // the last layer, and what is beside it
  norm,
  bias,
  router,    // chooses experts: small, and a wrong choice costs much
  conv,      // convolutions and patch embeddings
  position,  // tables of positions
  vision,    // of a vision or audio tower: few weights, and loaders keep them as they are
  other,
};

struct TensorRole {
  Role role = Role::other;
  std::string why{};  // why it is left alone; empty for linear and expert_stack
  // Why it cannot be quantized although it is a matrix that is multiplied by, or "".
  std::string_view never{};
};

[[nodiscard]] OCTAVO_API TensorRole role_of(std::string_view name,
                                            const std::vector<std::uint64_t>& shape,
                                            const Json& config);

// "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight".
[[nodiscard]] OCTAVO_API std::string_view module_of(std::string_view name);

// "model.layers.0.mlp.experts" of "model.layers.0.mlp.experts.down_proj": the module that has a
// stack among its parameters, and what loaders ask of when they ask whether to quantize it.
[[nodiscard]] OCTAVO_API std::string_view holder_of(std::string_view name);

// Tensors with the same key are one matrix to servers, or the experts of one layer: q/k/v, gate/up,
// w1/w3, MLA's q_a/kv_a. Empty: it stands alone.
[[nodiscard]] OCTAVO_API std::string fusion_key(std::string_view module);

// Tensors with the same key are loaded as one: quantized alike, or not at all. What is fused, and
// all matrices of a layer's experts. Empty: it stands alone.
[[nodiscard]] OCTAVO_API std::string group_key(std::string_view module);

// Where servers put its rows in the one matrix. Only the last part's may end within a block.
enum class FusedPlace : std::uint8_t {
  alone,
  inner,            // another part follows, or it is an expert's
  last,             // of q/k/v or gate/up
  replicated_last,  // of MLA's q_a/kv_a, which every device has whole
};
[[nodiscard]] OCTAVO_API FusedPlace fused_place(std::string_view module);

// Sorts "layers.10" behind "layers.9".
[[nodiscard]] OCTAVO_API bool natural_less(std::string_view a, std::string_view b);

}  // namespace octavo
