// FrozenLinear: a Linear whose weight is read from a checkpoint and not trained: values of any
// type, or codes with scales, multiplied without dequantizing them. Where the checkpoint says that
// activations are quantized, the input is, as a serving engine does it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/nn/layer_observer.h"
#include "octavo/nn/linear/linear_pass.h"
#include "octavo/ops/packed_weights.h"
#include "octavo/quant/produced.h"
#include "octavo/quant/scaling.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// How the input of a Linear is quantized, or rounded where there is no scaling.
struct OCTAVO_API InputQuantization {
  std::optional<Scaling> scaling{};
  // Static (calibrated): the scale per tensor; of NVFP4 its second level. 0: from each input.
  float static_scale = 0.0F;
  // Without a scaling: the type that the input is rounded to before the product; f32: as it is.
  DType values = DType::f32;

  bool operator==(const InputQuantization&) const = default;
  [[nodiscard]] QuantizedTensor quantize(const View& x, const LinearRun& run) const;
  [[nodiscard]] QuantizedTensor quantize(const Produced& x, const LinearRun& run) const;
};

struct OCTAVO_API FrozenLinear {
  // Names in the checkpoint, for observers: several where matrices were joined into one (Q, K, V).
  std::vector<std::string> modules{};
  LinearWeight weight{};  // [out, in]
  // The same, packed for a CPU's matrix instructions; `weight` is then empty.
  std::shared_ptr<const PackedWeights> packed{};
  Tensor bias{};  // [out], or empty
  InputQuantization input{};

  [[nodiscard]] bool exists() const { return packed != nullptr || weight.shape().rank() > 0; }
  [[nodiscard]] const Shape& shape() const { return packed ? packed->shape : weight.shape(); }
  [[nodiscard]] std::int64_t out() const { return shape()[0]; }
  [[nodiscard]] std::int64_t in() const { return shape()[1]; }
  [[nodiscard]] std::int64_t nbytes() const;

  // [rows, in] into [rows, out]: x w^T + bias, and what `residual` has where it is given. No memory
  // is shared.
  void forward_into(const View& x, const View& y, const LayerRun& run = {},
                    const View& residual = {}) const;
};

// Several with the same input, whose results are columns side by side: [rows, in] into [rows, sum
// of out]. The input is quantized once.
OCTAVO_API void forward_into(std::span<const FrozenLinear> parts, const View& x, const View& y,
                             const LayerRun& run = {}, const View& residual = {});
// The same of what a norm or an activation gives, fused with the quantizer where there is one.
OCTAVO_API void forward_into(std::span<const FrozenLinear> parts, const Produced& x, const View& y,
                             const LayerRun& run = {}, const View& residual = {});

}  // namespace octavo
