// Activations (GELU, ReLU, SiLU, SwiGLU, GEGLU), to values or fused with quantize:
//   Tensor y = gelu(x, GeluForm::tanh);
//   QuantizedTensor q = quantize(produced(x, Activation{.kind = ActivationKind::silu, .gated =
//   true}),
//                                preset("mxfp8"));
// Gated ones halve the last dimension: the activation of the first half times the second half, as
// Transformer Engine has it. (torch.nn.functional.glu has it the other way round.)
#pragma once

#include <cstdint>

#include "octavo/backend/producer.h"
#include "octavo/base/macros.h"
#include "octavo/ops/produce.h"
#include "octavo/quant/produced.h"
#include "octavo/tensor/tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// gelu: x * (probability that a normal variable is below x). gelu_tanh: the approximation of it
// that Transformer Engine means by GELU. silu: x / (1 + exp(-x)).
enum class ActivationKind : std::uint8_t { gelu, gelu_tanh, relu, silu };

constexpr ProducerKind producer_kind(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::gelu:
      return ProducerKind::gelu;
    case ActivationKind::gelu_tanh:
      return ProducerKind::gelu_tanh;
    case ActivationKind::silu:
      return ProducerKind::silu;
    default:
      return ProducerKind::relu;
  }
}

struct Activation {
  ActivationKind kind = ActivationKind::gelu;
  bool gated = false;
};

// Throws Error on arguments that do not fit. Lazy: x must stay alive until the result is computed.
[[nodiscard]] OCTAVO_API Produced produced(const View& x, const Activation& activation);

enum class GeluForm : std::uint8_t { exact, tanh };

[[nodiscard]] OCTAVO_API Tensor gelu(const View& x, GeluForm form = GeluForm::exact,
                                     const ProduceOptions& options = {});
[[nodiscard]] OCTAVO_API Tensor relu(const View& x, const ProduceOptions& options = {});
[[nodiscard]] OCTAVO_API Tensor silu(const View& x, const ProduceOptions& options = {});
// silu(first half) * second half, and the same with gelu.
[[nodiscard]] OCTAVO_API Tensor swiglu(const View& x, const ProduceOptions& options = {});
[[nodiscard]] OCTAVO_API Tensor geglu(const View& x, GeluForm form = GeluForm::exact,
                                      const ProduceOptions& options = {});

}  // namespace octavo
