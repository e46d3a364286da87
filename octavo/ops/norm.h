// LayerNorm and RMSNorm over the last dimension, to values or fused with quantize:
//   Tensor y = layer_norm(x, {.weight = gamma, .bias = beta});
//   QuantizedTensor q = quantize(produced(x, LayerNorm{.weight = gamma}), preset("mxfp8"));
// docs/numerics/producers.md has the formulas and the bounds.
#pragma once

#include "octavo/base/macros.h"
#include "octavo/ops/produce.h"
#include "octavo/quant/produced.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// (x - mean) / sqrt(variance + epsilon) * weight + bias. Views without memory are left out.
struct LayerNorm {
  View weight{}, bias{};  // as long as a row, of any value type
  double epsilon = 1e-5;
  bool zero_centred = false;  // the weight is stored as gamma - 1
  // If they have memory: one f32 for each row, for a backward pass.
  View mean{}, inv_std{};
};

// x / sqrt(mean of squares + epsilon) * weight.
struct RmsNorm {
  View weight{};
  double epsilon = 1e-5;
  bool zero_centred = false;
  View inv_rms{};
};

// Throws Error on arguments that do not fit. Lazy: memory must stay alive until the result is
// computed.
[[nodiscard]] OCTAVO_API Produced produced(const View& x, const LayerNorm& norm);
[[nodiscard]] OCTAVO_API Produced produced(const View& x, const RmsNorm& norm);

[[nodiscard]] OCTAVO_API Tensor layer_norm(const View& x, const LayerNorm& norm = {},
                                           const ProduceOptions& options = {});
[[nodiscard]] OCTAVO_API Tensor rms_norm(const View& x, const RmsNorm& norm = {},
                                         const ProduceOptions& options = {});

}  // namespace octavo
