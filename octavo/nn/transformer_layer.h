// TransformerLayer: attention and MLP (or mixture of experts) of a decoder, each with a norm before
// it, a residual connection around it and, in some families (Gemma), a norm after it.
#pragma once

#include <cstdint>
#include <variant>

#include "octavo/base/macros.h"
#include "octavo/nn/kv_cache.h"
#include "octavo/nn/layer_observer.h"
#include "octavo/nn/mixture_of_experts.h"
#include "octavo/nn/mlp.h"
#include "octavo/nn/multihead_attention.h"
#include "octavo/nn/norm_layer.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct OCTAVO_API TransformerLayer {
  NormLayer attention_norm{}, mlp_norm{};              // before
  NormLayer after_attention_norm{}, after_mlp_norm{};  // or empty
  MultiheadAttention attention{};
  std::variant<Mlp, MixtureOfExperts> mlp{};

  // In place: [batch, tokens, hidden], f32, dense. With a cache the tokens come after those in it.
  void forward(const View& hidden, KvCache* cache = nullptr, const LayerRun& run = {}) const;
  // Its two halves, each with its norms and its residual connection, into other memory: forward is
  // one after the other. [batch, tokens, hidden] and [rows, hidden], f32, dense.
  void attend_into(const View& hidden, const View& out, KvCache* cache = nullptr,
                   const LayerRun& run = {}) const;
  void feed_forward_into(const View& hidden, const View& out, const LayerRun& run = {}) const;
  [[nodiscard]] std::int64_t nbytes() const;
};

}  // namespace octavo
