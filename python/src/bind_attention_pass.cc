// Forward of attention under the recipe of a scope, for the Python attention modules.
#include "octavo/nn/linear/attention_pass.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn_run.h"

namespace octavo::python {
namespace {

using Lengths = std::vector<std::int64_t>;
using Codes = std::shared_ptr<QuantizedTensor>;

// A call and what came of it. Q, K and V of the call are the caller's, and may be gone.
struct Pass {
  AttentionPassCall call;
  AttentionPassResult result;
};

std::shared_ptr<Pass> forward(
    const View& q, const View& k, const View& v, ModuleQuantizers& quantizers, bool training,
    const std::string& precision, const std::string& fp8_precision, bool causal, bool bottom_right,
    std::int64_t left, std::int64_t right, const Lengths& query_lengths, const Lengths& key_lengths,
    const std::optional<double>& softmax_scale, const std::optional<View>& bias,
    ForwardScales* scales, nb::object allocate, std::uintptr_t stream,
    const std::optional<View>& log_sum_exp, double dropout, std::uint64_t seed) {
  auto pass = std::make_shared<Pass>();
  AttentionPassCall& call = pass->call;
  call.q = q;
  call.k = k;
  call.v = v;
  call.options.rung = parse_attention_rung(precision);
  call.options.mask = {.causal = causal,
                       .bottom_right = bottom_right,
                       .left = left,
                       .right = right,
                       .query_lengths = query_lengths,
                       .key_lengths = key_lengths,
                       .bias = bias.value_or(View{})};
  call.options.softmax_scale = softmax_scale;
  call.options.dropout = {dropout, seed};
  call.options.log_sum_exp = log_sum_exp.value_or(View{});
  call.fp8_rung = parse_attention_rung(fp8_precision);
  call.training = training;
  call.quantizers = &quantizers;
  call.scales = scales;
  call.run = run_of(std::move(allocate), cuda_index(q.device), stream);
  const nb::gil_scoped_release released;
  pass->result = attention_forward(call);
  call.options = {};  // it refers to arguments
  return pass;
}

std::vector<Codes> inputs(const Pass& pass) {
  if (!pass.result.is_fp8) return {};
  std::vector<Codes> found;
  for (const QuantizedTensor* codes : {&pass.result.q, &pass.result.k, &pass.result.v})
    found.push_back(std::make_shared<QuantizedTensor>(*codes));
  return found;
}

Codes output_codes(const Pass& pass, const View& out) {
  const nb::gil_scoped_release released;
  return std::make_shared<QuantizedTensor>(attention_output_codes(pass.call, pass.result, out));
}

}  // namespace

void bind_attention_pass(nb::module_& module) {
  nb::class_<Pass>(module, "AttentionPass", "A forward of attention under a recipe.")
      .def_prop_ro(
          "out", [](const Pass& self) { return share(self.result.out); }, "Values.")
      .def_prop_ro("inputs", &inputs, "Q, K and V where they were multiplied as codes, else empty.")
      .def_prop_ro(
          "gives_codes", [](const Pass& self) { return self.result.output_quantizers != nullptr; },
          "Whether the recipe wants the output as codes.")
      .def("output_codes", &output_codes, nb::arg("values"),
           "The output as codes, of its values as they are to lie.");
  module.def("attention_forward", &forward, nb::arg("q"), nb::arg("k"), nb::arg("v"),
             nb::arg("quantizers"), nb::kw_only(), nb::arg("training"), nb::arg("precision"),
             nb::arg("fp8_precision"), nb::arg("causal"), nb::arg("bottom_right"), nb::arg("left"),
             nb::arg("right"), nb::arg("query_lengths"), nb::arg("key_lengths"),
             nb::arg("softmax_scale").none(), nb::arg("bias").none(),
             nb::arg("scales").none() = nb::none(), nb::arg("allocate").none() = nb::none(),
             nb::arg("stream") = 0, nb::arg("log_sum_exp").none() = nb::none(),
             nb::arg("dropout") = 0.0, nb::arg("seed") = 0, nb::keep_alive<0, 4>(),
             nb::keep_alive<0, 16>(), "Attention in the autocast scope of this thread.");
}

}  // namespace octavo::python
