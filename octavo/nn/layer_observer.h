// LayerObserver: what passes through a layer's forward, for calibration and statistics.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "octavo/nn/linear/linear_pass.h"
#include "octavo/tensor/view.h"

namespace octavo {

// Views are valid during the call; functions that are empty are not called.
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

// How the parts of a layer run.
struct LayerRun {
  LinearRun run{};
  const LayerObserver* observer = nullptr;
  // Tokens of the whole prompt, where these are a part of it and more follow: RoPE may depend on
  // its length. 0: these are the last.
  std::int64_t context = 0;

  [[nodiscard]] bool observes_inputs() const { return observer != nullptr && observer->on_input; }
};

}  // namespace octavo
