// NormLayer: RMSNorm or LayerNorm with its parameters, over the last dimension.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/nn/linear/linear_pass.h"
#include "octavo/quant/produced.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

enum class NormKind : std::uint8_t { rms, layer };

struct OCTAVO_API NormLayer {
  NormKind kind = NormKind::rms;
  Tensor weight{}, bias{};  // [size] of any value type; empty: left out
  double epsilon = 1e-6;
  bool zero_centred = false;  // weights are stored as gamma - 1 (Gemma)

  [[nodiscard]] bool exists() const { return weight.owner() != nullptr; }
  // Lazy, to be fused with a quantizer; x must stay alive.
  [[nodiscard]] Produced produced(const View& x) const;
  [[nodiscard]] Tensor forward(const View& x, const LinearRun& run = {}) const;
  // Into memory that shares nothing with x.
  void forward_into(const View& x, const View& out, const LinearRun& run = {}) const;
  [[nodiscard]] std::int64_t nbytes() const;
};

}  // namespace octavo
