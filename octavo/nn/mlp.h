// Mlp: the feed-forward part of a decoder layer, plain (down(activation(up x))) or gated
// (down(activation(gate x) * up x)).
#pragma once

#include <cstdint>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/nn/frozen_linear.h"
#include "octavo/nn/layer_observer.h"
#include "octavo/ops/activation.h"
#include "octavo/tensor/view.h"

namespace octavo {

// The activation between the products of an MLP or an expert.
struct MlpActivation {
  ActivationKind kind = ActivationKind::silu;
  bool gated = true;
  // gpt-oss: gate and up clamped to +-limit, gate * sigmoid(alpha * gate) * (up + 1); 0: not so.
  double gate_limit = 0.0, gate_alpha = 0.0;
};

struct OCTAVO_API Mlp {
  MlpActivation activation{};
  std::vector<FrozenLinear> up{};  // gate and up, whose results are side by side; or up alone
  FrozenLinear down{};

  // [rows, hidden] into [rows, hidden], f32, with what `residual` has.
  void forward_into(const View& x, const View& y, const LayerRun& run = {},
                    const View& residual = {}) const;
  [[nodiscard]] std::int64_t nbytes() const;
};

}  // namespace octavo
