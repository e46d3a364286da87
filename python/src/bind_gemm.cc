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
  module.def(
      "gemm_shape",
      [](const OperandArgument& a, const OperandArgument& b) {
        return list_of(gemm_shape(operand_of(a), operand_of(b)));
      },
      nb::arg("a"), nb::arg("b"), "Of the product, checked.");
  module.def(
      "gemm",
      [](const OperandArgument& a, const OperandArgument& b, const View& target,
         const std::optional<View>& bias, const std::optional<std::string>& activation,
         const std::optional<View>& residual, const std::string& accumulator,
         std::int64_t promote_every, int threads, std::uintptr_t stream, bool count_aligned) {
        GemmOptions options = options_of(bias, activation, residual, accumulator, promote_every,
                                         threads, stream, "gemm");
        std::int64_t aligned = 0;
        if (count_aligned) options.aligned = &aligned;
        const nb::gil_scoped_release released;
        gemm_into(operand_of(a), operand_of(b), target, options);
        return aligned;
      },
      nb::arg("a"), nb::arg("b"), nb::arg("target"), nb::arg("bias").none(),
      nb::arg("activation").none(), nb::arg("residual").none(), nb::arg("accumulator"),
      nb::arg("promote_every"), nb::kw_only(), nb::arg("threads") = 0, nb::arg("stream") = 0,
      nb::arg("count_aligned") = false,
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
      [](const OperandArgument& a, const OperandArgument& b, QuantizedTensor& out,
         const std::optional<View>& bias, const std::optional<std::string>& activation,
         const std::optional<View>& residual, const std::string& accumulator,
         std::int64_t promote_every, int threads, std::uintptr_t stream, bool count_aligned) {
        GemmOptions options = options_of(bias, activation, residual, accumulator, promote_every,
                                         threads, stream, "gemm_quantized");
        std::int64_t aligned = 0;
        if (count_aligned) options.aligned = &aligned;
        const nb::gil_scoped_release released;
        gemm_quantized_into(operand_of(a), operand_of(b), out, options);
        return aligned;
      },
      nb::arg("a"), nb::arg("b"), nb::arg("out"), nb::arg("bias").none(),
      nb::arg("activation").none(), nb::arg("residual").none(), nb::arg("accumulator"),
      nb::arg("promote_every"), nb::kw_only(), nb::arg("threads") = 0, nb::arg("stream") = 0,
      nb::arg("count_aligned") = false, "The same as codes with scales, into memory of `out`.");
}

}  // namespace octavo::python
