// MultiheadAttention: projections, rotary position embedding and causal attention of a decoder
// layer: grouped queries (fewer heads of keys and values than of queries), a sliding window, a norm
// over each head of Q and K, a KV cache.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/nn/frozen_linear.h"
#include "octavo/nn/kv_cache.h"
#include "octavo/nn/layer_observer.h"
#include "octavo/nn/norm_layer.h"
#include "octavo/nn/rotary_embedding.h"
#include "octavo/ops/attention/attention.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct OCTAVO_API MultiheadAttention {
  std::string module{};  // "model.layers.0.self_attn", for observers
  std::int64_t heads = 0, kv_heads = 0, head_size = 0;
  double scale = 0.0;        // of q k
  std::int64_t window = -1;  // keys that a token sees, itself included; negative: all before it
  double soft_cap = 0.0;     // cap * tanh(score / cap); 0: none
  AttentionRung rung = AttentionRung::f32;
  Tensor sinks{};  // f32, [heads]: a logit that no key has; or empty
  std::shared_ptr<const RotaryEmbedding> rope{};

  std::vector<FrozenLinear> qkv{};  // their results side by side are Q, K and V
  FrozenLinear out{};
  NormLayer q_norm{}, k_norm{};  // over each head, before the rotation; or empty

  // x is what precedes the projections, [batch * tokens, hidden]; y = attention + residual, f32.
  // With a cache the tokens come after those in it, which they see, too.
  void forward_into(const Produced& x, std::int64_t batch, const View& y, const View& residual,
                    KvCache* cache = nullptr, const LayerRun& run = {}) const;
  [[nodiscard]] std::int64_t nbytes() const;
};

}  // namespace octavo
