// One decoder layer with its weights: norms, attention, MLP or mixture of experts, on the hidden
// states of any number of sequences at once.
//   const ModelFiles files("model/");
//   const DecoderLayer layer = files.load_layer(0);
//   layer.forward({.hidden = hidden.view()});
// Everything is computed in f32, except that activations of quantized weights are quantized as the
// checkpoint says, and that what enters other products and attention is rounded to bf16 where
// ModelFilesOptions::activations asks for it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "octavo/base/macros.h"
#include "octavo/nn/kv_cache.h"
#include "octavo/nn/layer_observer.h"
#include "octavo/nn/linear/linear_pass.h"
#include "octavo/nn/transformer_layer.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct LayerCall {
  View hidden{};  // [batch, tokens, hidden_size], f32 or bf16, dense; updated in place
  // With a cache these tokens come after those in it, which they see too; without, every sequence
  // begins at position 0 and its tokens see each other alone.
  KvCache* cache = nullptr;
  const LayerObserver* observer = nullptr;
  std::int64_t context = 0;  // as in LayerRun: of a prompt in parts, the tokens of the whole one
  LinearRun run{};
};

class OCTAVO_API DecoderLayer {
 public:
  struct Parts {
    TransformerLayer layer{};
    std::int64_t hidden = 0, max_positions = 0;
  };
  explicit DecoderLayer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  // Threads may share a layer. Throws Error where shapes do not fit, or the context is longer than
  // the model's positions.
  void forward(const LayerCall& call) const;
  [[nodiscard]] std::int64_t nbytes() const { return parts_->layer.nbytes(); }  // of its weights
  [[nodiscard]] const Parts& parts() const { return *parts_; }

 private:
  std::shared_ptr<const Parts> parts_;
};

}  // namespace octavo
