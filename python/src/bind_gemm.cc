// GEMM and grouped GEMM. The caller keeps the memory of all views and operands alive until the call
// returns.
#include "octavo/ops/gemm.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "bind.h"
#include "gemm_operand.h"
#include "octavo/base/error.h"

namespace octavo::python {
namespace {

GemmOptions options_of(const std::optional<View>& bias,
                       const std::optional<std::string>& activation,
                       const std::optional<View>& residual, const std::string& accumulator,
                       std::int64_t promote_every, int threads, std::uintptr_t stream,
                       const char* op) {
  GemmOptions options{.accumulator = parse_accumulator(accumulator, op),
                      .promote_every = promote_every,
                      .bias = bias.value_or(View{}),
                      .residual = residual.value_or(View{}),
                      .threads = threads,
                      .stream = stream_of(stream)};
  if (activation) options.activation = parse_activation(*activation, op);
  return options;
}

}  // namespace

void bind_gemm(nb::module_& module) {
  nb::class_<PackedWeights>(module, "PackedWeights",
                            "Weights packed once for this CPU's matrix instructions (octavo.pack).")
      .def_prop_ro(
          "shape", [](const PackedWeights& one) { return nb::tuple(nb::cast(list_of(one.shape))); },
          "(N, K)")
      .def_prop_ro(
          "scaling", [](const PackedWeights& one) { return one.scaling; },
          "How they are quantized; None: they are values.")
      .def_ro("backend", &PackedWeights::backend, "Whose microkernels read them.")
      .def_prop_ro(
          "in_panels", [](const PackedWeights& one) { return one.panels.exists(); },
          "Are they in the order of packed panels? Else they are rows: on CPUs without matrix "
          "instructions, and of types that those do not multiply.")
      .def_prop_ro("nbytes", &PackedWeights::nbytes, "Of memory, scales included.")
      .def("__reduce__",
           [](const PackedWeights& one) -> nb::tuple {
             throw nb::type_error(text("[pack] PackedWeights are for ", one.backend,
                                       " of this machine; pickle or copy the weights, and pack "
                                       "them again")
                                      .c_str());
           })
      .def(
          "__array__",
          [](const PackedWeights&, const nb::args&, const nb::kwargs&) -> nb::object {
            throw nb::type_error(
                "[pack] PackedWeights have no values in rows; keep the weights, or dequantize them "
                "before pack");
          })
      .def("__repr__", [](const PackedWeights& one) {
        return "octavo.PackedWeights(" + to_string(one.shape) + ", " +
               (one.scaling ? describe(*one.scaling) : std::string("values")) + ", for " +
               one.backend + ")";
      });
  module.def(
      "pack",
      [](const OperandArgument& weights, int threads) {
        const nb::gil_scoped_release released;
        return pack(operand_of(weights), {.threads = threads});
      },
      nb::arg("weights"), nb::kw_only(), nb::arg("threads") = 0, "A copy in packed panels.");
  module.def(
      "gemm_shape",
      [](const OperandArgument& a, const RightArgument& b) {
        return list_of(
            with_right(b, [&](const auto& right) { return gemm_shape(operand_of(a), right); }));
      },
      nb::arg("a"), nb::arg("b"), "Of the product, checked.");
  module.def(
      "gemm",
      [](const OperandArgument& a, const RightArgument& b, const View& target,
         const std::optional<View>& bias, const std::optional<std::string>& activation,
         const std::optional<View>& residual, const std::string& accumulator,
         std::int64_t promote_every, int threads, std::uintptr_t stream, bool count_aligned,
         bool oblivious) {
        GemmOptions options = options_of(bias, activation, residual, accumulator, promote_every,
                                         threads, stream, "gemm");
        options.oblivious = oblivious;
        std::int64_t aligned = 0;
        if (count_aligned) options.aligned = &aligned;
        const nb::gil_scoped_release released;
        with_right(b, [&](const auto& right) { gemm_into(operand_of(a), right, target, options); });
        return aligned;
      },
      nb::arg("a"), nb::arg("b"), nb::arg("target"), nb::arg("bias").none(),
      nb::arg("activation").none(), nb::arg("residual").none(), nb::arg("accumulator"),
      nb::arg("promote_every"), nb::kw_only(), nb::arg("threads") = 0, nb::arg("stream") = 0,
      nb::arg("count_aligned") = false, nb::arg("oblivious") = false,
      "activation(A B^T + bias) + residual, into a view of values. Returns how many elements "
      "alignment "
      "changed, if that is asked for.");
  module.def(
      "gemm_grouped",
      [](const OperandArgument& a, const OperandArgument& b, const std::vector<std::int64_t>& rows,
         const View& target, const std::optional<View>& bias,
         const std::optional<std::string>& activation, const std::optional<View>& residual,
         const std::string& accumulator, std::int64_t promote_every, int threads,
         std::uintptr_t stream, bool count_aligned) {
        GemmOptions options = options_of(bias, activation, residual, accumulator, promote_every,
                                         threads, stream, "gemm_grouped");
        std::int64_t aligned = 0;
        if (count_aligned) options.aligned = &aligned;
        const nb::gil_scoped_release released;
        gemm_grouped_into(operand_of(a), operand_of(b), rows, target, options);
        return aligned;
      },
      nb::arg("a"), nb::arg("b"), nb::arg("rows"), nb::arg("target"), nb::arg("bias").none(),
      nb::arg("activation").none(), nb::arg("residual").none(), nb::arg("accumulator"),
      nb::arg("promote_every"), nb::kw_only(), nb::arg("threads") = 0, nb::arg("stream") = 0,
      nb::arg("count_aligned") = false,
      "Rows of A by the matrix that their group has in B, into a view of values.");
  module.def(
      "gemm_quantized_into",
      [](const OperandArgument& a, const RightArgument& b, QuantizedTensor& out,
         const std::optional<View>& bias, const std::optional<std::string>& activation,
         const std::optional<View>& residual, const std::string& accumulator,
         std::int64_t promote_every, int threads, std::uintptr_t stream, bool count_aligned,
         bool oblivious) {
        GemmOptions options = options_of(bias, activation, residual, accumulator, promote_every,
                                         threads, stream, "gemm_quantized");
        options.oblivious = oblivious;
        std::int64_t aligned = 0;
        if (count_aligned) options.aligned = &aligned;
        const nb::gil_scoped_release released;
        with_right(
            b, [&](const auto& right) { gemm_quantized_into(operand_of(a), right, out, options); });
        return aligned;
      },
      nb::arg("a"), nb::arg("b"), nb::arg("out"), nb::arg("bias").none(),
      nb::arg("activation").none(), nb::arg("residual").none(), nb::arg("accumulator"),
      nb::arg("promote_every"), nb::kw_only(), nb::arg("threads") = 0, nb::arg("stream") = 0,
      nb::arg("count_aligned") = false, nb::arg("oblivious") = false,
      "The same as codes with scales, into memory of `out`.");
}

}  // namespace octavo::python
