// One decoder layer with its weights: norms, attention, MLP or mixture of experts, on the hidden
// states of any number of sequences at once.
//   const ModelFiles files("model/");
//   const DecoderLayer layer = files.load_layer(0);
//   layer.forward({.hidden = hidden.view()});
// Everything is computed in f32 (or on a device in the type of the hidden states) except for
// products of quantized weights, whose activations are quantized as the checkpoint says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/nn/linear_pass.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// What passes through a layer, for calibration. Views are valid during the call; functions that
// are empty are not called.
struct LayerObserver {
  // The input of a Linear, [rows, in], by the name that its module has in the checkpoint
  // ("model.layers.0.mlp.down_proj"). Modules with the same input (Q, K and V; gate and up) are
  // each named. An expert's input has the rows that were routed to it, also when there are none.
  std::function<void(std::string_view module, const View& input)> on_input{};
  // Keys and values as they enter the cache, [batch, kv_heads, tokens, head_size], by the name of
  // the attention module.
  std::function<void(std::string_view module, const View& k, const View& v)> on_cache{};
  // How many tokens each expert got, by the name of the module with the router.
  std::function<void(std::string_view module, std::span<const std::int64_t> tokens)> on_routing{};
};

class LayerCache;  // keys and values of earlier tokens, of one layer: decoder.h

struct LayerCall {
  View hidden{};  // [batch, tokens, hidden_size], f32 or bf16, dense; updated in place
  // With a cache these tokens come after those in it, which they see too; without, every sequence
  // begins at position 0 and its tokens see each other alone.
  LayerCache* cache = nullptr;
  const LayerObserver* observer = nullptr;
  LinearRun run{};
};

class OCTAVO_API DecoderLayer {
 public:
  struct Parts;  // decoder_layer_internal.h
  explicit DecoderLayer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  // Threads may share a layer. Throws Error where shapes do not fit.
  void forward(const LayerCall& call) const;
  [[nodiscard]] std::int64_t nbytes() const;  // of its weights
  [[nodiscard]] const Parts& parts() const { return *parts_; }

 private:
  std::shared_ptr<const Parts> parts_;
};

}  // namespace octavo
