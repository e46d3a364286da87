// Transformer Engine's quantizers. The Python classes own the state arrays.
#include "octavo/quant/quantizer.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <functional>
#include <optional>
#include <utility>

#include "bind.h"

namespace octavo::python {
namespace {

using Found = std::optional<CountTuple>;

template <typename Kind, typename... Arguments>
auto by_name(Arguments&&... arguments) {
  return nb::class_<Kind, Quantizer>(std::forward<Arguments>(arguments)...);
}

Found fill(Quantizer& self, const View& values, QuantizedTensor& out, int threads, bool count,
           std::uintptr_t stream) {
  check_writable(out);
  const nb::gil_scoped_release released;
  Counting counting(count, values.device, stream);
  self.quantize_into(values, out,
                     {.threads = threads, .counts = counting.at(), .stream = stream_of(stream)});
  return counting.found();
}

}  // namespace

void bind_quantizer(nb::module_& module) {
  nb::class_<Quantizer>(module, "Quantizer", "A configuration that becomes a Scaling.")
      .def_prop_ro("name", &Quantizer::name)
      .def_prop_ro(
          "scaling", [](const Quantizer& self) { return self.scaling(); }, nb::rv_policy::move)
      .def("set_usage", &Quantizer::set_usage, nb::arg("rowwise").none(),
           nb::arg("columnwise").none(), "Which copies are made from now on.")
      .def("copy", &Quantizer::clone, "Another one that is set the same way; state is shared.")
      .def(
          "calibrate",
          [](Quantizer& self, const View& values, std::uintptr_t stream) {
            const nb::gil_scoped_release released;
            self.calibrate(values, {.stream = stream_of(stream)});
          },
          nb::arg("values"), nb::arg("stream") = 0, "Takes note of values and quantizes nothing.")
      .def("quantize_into", &fill, nb::arg("values"), nb::arg("out"), nb::kw_only(),
           nb::arg("threads") = 0, nb::arg("count") = false, nb::arg("stream") = 0);

  by_name<Float8Quantizer>(module, "Float8Quantizer")
      .def(
          "__init__",
          [](Float8Quantizer* self, const View& inv_scale, const View& amax, const Format& format,
             bool rowwise, bool columnwise) {
            new (self) Float8Quantizer({.inv_scale = inv_scale,
                                        .amax = amax,
                                        .format = format,
                                        .rowwise = rowwise,
                                        .columnwise = columnwise});
          },
          nb::arg("inv_scale"), nb::arg("amax"), nb::arg("format"), nb::arg("rowwise"),
          nb::arg("columnwise"));
  by_name<Float8CurrentScalingQuantizer>(module, "Float8CurrentScalingQuantizer")
      .def(
          "__init__",
          [](Float8CurrentScalingQuantizer* self, const Format& format, bool rowwise,
             bool columnwise, bool power_of_two, float min_amax,
             std::optional<std::function<float(float)>> reduce_amax) {
            new (self) Float8CurrentScalingQuantizer(
                {.format = format,
                 .rowwise = rowwise,
                 .columnwise = columnwise,
                 .power_of_two = power_of_two,
                 .min_amax = min_amax,
                 .reduce_amax = std::move(reduce_amax).value_or(std::function<float(float)>())});
          },
          nb::arg("format"), nb::arg("rowwise"), nb::arg("columnwise"), nb::arg("power_of_two"),
          nb::arg("min_amax"), nb::arg("reduce_amax").none());
  by_name<Float8BlockQuantizer>(module, "Float8BlockQuantizer")
      .def(
          "__init__",
          [](Float8BlockQuantizer* self, const Format& format, bool rowwise, bool columnwise,
             bool power_of_two, float min_amax, int block_dims) {
            new (self) Float8BlockQuantizer({.format = format,
                                             .rowwise = rowwise,
                                             .columnwise = columnwise,
                                             .power_of_two = power_of_two,
                                             .min_amax = min_amax,
                                             .block_dims = block_dims});
          },
          nb::arg("format"), nb::arg("rowwise"), nb::arg("columnwise"), nb::arg("power_of_two"),
          nb::arg("min_amax"), nb::arg("block_dims"));
  by_name<MXFP8Quantizer>(module, "MXFP8Quantizer")
      .def(
          "__init__",
          [](MXFP8Quantizer* self, const Format& format, bool rowwise, bool columnwise,
             bool two_dimensional) {
            new (self) MXFP8Quantizer({.format = format,
                                       .rowwise = rowwise,
                                       .columnwise = columnwise,
                                       .two_dimensional = two_dimensional});
          },
          nb::arg("format"), nb::arg("rowwise"), nb::arg("columnwise"), nb::arg("two_dimensional"));
  by_name<NVFP4Quantizer>(module, "NVFP4Quantizer")
      .def(
          "__init__",
          [](NVFP4Quantizer* self, bool rowwise, bool columnwise, bool with_rht,
             std::uint16_t rht_signs, bool two_dimensional, bool stochastic_rounding,
             std::uint64_t seed) {
            new (self) NVFP4Quantizer({.rowwise = rowwise,
                                       .columnwise = columnwise,
                                       .with_rht = with_rht,
                                       .rht_signs = rht_signs,
                                       .two_dimensional = two_dimensional,
                                       .stochastic_rounding = stochastic_rounding,
                                       .seed = seed});
          },
          nb::arg("rowwise"), nb::arg("columnwise"), nb::arg("with_rht"), nb::arg("rht_signs"),
          nb::arg("two_dimensional"), nb::arg("stochastic_rounding"), nb::arg("seed"))
      .def("set_seed", &NVFP4Quantizer::set_seed, nb::arg("seed"));
  module.def(
      "te_hadamard_signs", [] { return kTeHadamardSigns; },
      "The signs of Transformer Engine's Hadamard transform.");
}

}  // namespace octavo::python
