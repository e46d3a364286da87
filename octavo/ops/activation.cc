#include "octavo/ops/activation.h"

#include <string_view>

#include "octavo/base/error.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

// Its name in messages.
std::string_view name_of(const Activation& activation) {
  switch (activation.kind) {
    case ActivationKind::relu:
      return activation.gated ? "reglu" : "relu";
    case ActivationKind::silu:
      return activation.gated ? "swiglu" : "silu";
    default:
      return activation.gated ? "geglu" : "gelu";
  }
}

ActivationKind kind_of(GeluForm form) {
  return form == GeluForm::tanh ? ActivationKind::gelu_tanh : ActivationKind::gelu;
}

}  // namespace

Produced produced(const View& x, const Activation& activation) {
  const std::string_view op = name_of(activation);
  check_view(x, op, "the input");
  check(
      is_value(x.dtype), ErrorCode::wrong_type, op,
      "the input holds codes; expected float64, float32, float16 or bfloat16; dequantize it first");
  Shape shape = x.shape;
  if (activation.gated) {
    const int last = shape.rank() - 1;
    check(last >= 0, ErrorCode::invalid_argument, op,
          "the input is a single number; a gated activation wants two halves along the last "
          "dimension");
    check(shape[last] % 2 == 0, ErrorCode::invalid_argument, op, "the last dimension is ",
          shape[last],
          "; a gated activation wants an even one: what is activated, then what it is multiplied "
          "by");
    shape[last] /= 2;
  }
  return {.x = x,
          .shape = shape,
          .producer = {.kind = producer_kind(activation.kind), .gated = activation.gated}};
}

Tensor gelu(const View& x, GeluForm form, const ProduceOptions& options) {
  return produce(produced(x, Activation{.kind = kind_of(form)}), options);
}

Tensor relu(const View& x, const ProduceOptions& options) {
  return produce(produced(x, Activation{.kind = ActivationKind::relu}), options);
}

Tensor silu(const View& x, const ProduceOptions& options) {
  return produce(produced(x, Activation{.kind = ActivationKind::silu}), options);
}

Tensor swiglu(const View& x, const ProduceOptions& options) {
  return produce(produced(x, Activation{.kind = ActivationKind::silu, .gated = true}), options);
}

Tensor geglu(const View& x, GeluForm form, const ProduceOptions& options) {
  return produce(produced(x, Activation{.kind = kind_of(form), .gated = true}), options);
}

}  // namespace octavo
