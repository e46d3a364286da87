// Norms and activations. Their result is lazy (Produced), and then stored or quantized; the memory
// of all views must stay alive until then.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/ops/activation.h"
#include "octavo/ops/norm.h"
#include "octavo/ops/produce.h"
#include "octavo/quant/produced.h"

namespace octavo::python {

ActivationKind parse_activation(std::string_view name, std::string_view op) {
  constexpr std::pair<std::string_view, ActivationKind> kNames[] = {
      {"gelu", ActivationKind::gelu},
      {"gelu_tanh", ActivationKind::gelu_tanh},
      {"relu", ActivationKind::relu},
      {"silu", ActivationKind::silu}};
  for (const auto& [known, kind] : kNames)
    if (known == name) return kind;
  fail(ErrorCode::invalid_argument, op, "got activation '", shown(name),
       "'; expected gelu, gelu_tanh, relu or silu");
}

void bind_ops(nb::module_& module) {
  nb::class_<Produced>(module, "Produced", "What a norm or an activation will make.")
      .def_prop_ro(
          "shape", [](const Produced& self) { return list_of(self.shape); }, "Of what comes out.");

  module.def(
      "layer_norm",
      [](const View& x, const std::optional<View>& weight, const std::optional<View>& bias,
         double epsilon, bool zero_centred) {
        return produced(x, LayerNorm{.weight = weight.value_or(View{}),
                                     .bias = bias.value_or(View{}),
                                     .epsilon = epsilon,
                                     .zero_centred = zero_centred});
      },
      nb::arg("x"), nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("epsilon"),
      nb::arg("zero_centred"), "LayerNorm over the last dimension.");
  module.def(
      "rms_norm",
      [](const View& x, const std::optional<View>& weight, double epsilon, bool zero_centred) {
        return produced(x, RmsNorm{.weight = weight.value_or(View{}),
                                   .epsilon = epsilon,
                                   .zero_centred = zero_centred});
      },
      nb::arg("x"), nb::arg("weight").none(), nb::arg("epsilon"), nb::arg("zero_centred"),
      "RMSNorm over the last dimension.");
  module.def(
      "activation",
      [](const View& x, const std::string& name, bool gated) {
        return produced(x,
                        Activation{.kind = parse_activation(name, "activation"), .gated = gated});
      },
      nb::arg("x"), nb::arg("name"), nb::arg("gated"),
      "gelu, gelu_tanh, relu or silu; gated: of the first half, times the second.");

  module.def(
      "produce",
      [](const Produced& values, const View& target, int threads, std::uintptr_t stream) {
        const nb::gil_scoped_release released;
        produce_into(values, target, {.threads = threads, .stream = stream_of(stream)});
      },
      nb::arg("values"), nb::arg("target"), nb::kw_only(), nb::arg("threads") = 0,
      nb::arg("stream") = 0, "What is made, into a view of values.");
  module.def(
      "quantize_produced_into",
      [](const Produced& values, QuantizedTensor& out, int threads, std::uintptr_t stream) {
        check_writable(out);
        const nb::gil_scoped_release released;
        quantize_into(values, out, {.threads = threads, .stream = stream_of(stream)});
      },
      nb::arg("values"), nb::arg("out"), nb::kw_only(), nb::arg("threads") = 0,
      nb::arg("stream") = 0, "What is made, as codes with scales.");
}

}  // namespace octavo::python
