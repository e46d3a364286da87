// Values with scales. Results stay in the library's memory; Python looks at it through Tensors.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/quant/fp8_quantize.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/quantized_tensor.h"

namespace octavo::python {
namespace {

using Sizes = std::vector<std::int64_t>;
using Found = std::optional<CountTuple>;

// Does the work without the GIL, and hands over what it counted.
template <typename Work>
Found counted(int threads, bool count, Work&& work) {
  Counts counts;
  {
    const nb::gil_scoped_release released;
    work(QuantizeOptions{.threads = threads, .counts = count ? &counts : nullptr});
  }
  return count ? Found(count_tuple(counts)) : std::nullopt;
}

std::pair<QuantizedTensor, Found> quantize_view(const View& values, const Scaling& scaling,
                                                int threads, bool count) {
  QuantizedTensor out;
  const Found found = counted(threads, count, [&](const QuantizeOptions& options) {
    out = quantize(values, scaling, options);
  });
  return {std::move(out), found};
}

Found quantize_view_into(const View& values, QuantizedTensor& out, int threads, bool count) {
  check_writable(out);
  return counted(threads, count,
                 [&](const QuantizeOptions& options) { quantize_into(values, out, options); });
}

std::pair<QuantizedTensor, Found> requantize_tensor(const QuantizedTensor& from,
                                                    const Scaling& scaling, int threads,
                                                    bool count) {
  QuantizedTensor out;
  const Found found = counted(threads, count, [&](const QuantizeOptions& options) {
    out = requantize(from, scaling, options);
  });
  return {std::move(out), found};
}

std::optional<SharedTensor> share_if_there(const Tensor& tensor) {
  return tensor.owner() != nullptr ? std::optional(share(tensor)) : std::nullopt;
}

template <QuantizedCopy QuantizedTensor::*kCopy, Tensor QuantizedCopy::*kPart>
std::optional<SharedTensor> part(const QuantizedTensor& self) {
  return share_if_there(self.*kCopy.*kPart);
}

}  // namespace

void check_writable(const QuantizedTensor& out) {
  for (const QuantizedCopy* copy : {&out.rowwise, &out.columnwise}) {
    for (const Tensor* part : {&copy->codes, &copy->scales, &copy->tensor_scale}) {
      check(!part->view().read_only, ErrorCode::invalid_argument, "quantize",
            "out has memory that is read-only; give one that quantize made");
    }
  }
}

void bind_quant(nb::module_& module) {
  using Q = QuantizedTensor;
  nb::class_<Q>(module, "QuantizedTensor", "Codes and their scales, in memory of the library's.")
      .def_static(
          "empty",
          [](const Sizes& shape, const std::string& source, const Scaling& scaling) {
            return make_quantized(checked_shape(shape), parse_dtype(source), scaling);
          },
          nb::arg("shape"), nb::arg("source"), nb::arg("scaling"),
          "Memory for a quantization, not initialised.")
      .def_static(
          "of",
          [](const Sizes& shape, const Scaling& scaling, const SharedTensor& codes,
             const SharedTensor& scales, const std::optional<SharedTensor>& tensor_scale) {
            return quantized_from(checked_shape(shape), scaling, codes.tensor, scales.tensor,
                                  tensor_scale ? tensor_scale->tensor : Tensor());
          },
          nb::arg("shape"), nb::arg("scaling"), nb::arg("codes"), nb::arg("scales"),
          nb::arg("tensor_scale").none() = nb::none(), "What somebody else made, checked.")
      .def_prop_ro(
          "shape", [](const Q& self) { return list_of(self.shape); }, "Of what was quantized.")
      .def_prop_ro(
          "source", [](const Q& self) { return std::string(dtype_name(self.source)); },
          "The type of what was quantized, by name.")
      .def_prop_ro(
          "scaling", [](const Q& self) { return self.scaling; }, nb::rv_policy::move)
      .def_prop_ro("nbytes", &Q::nbytes, "All copies together.")
      .def_prop_ro("codes", &part<&Q::rowwise, &QuantizedCopy::codes>)
      .def_prop_ro("scales", &part<&Q::rowwise, &QuantizedCopy::scales>)
      .def_prop_ro("tensor_scale", &part<&Q::rowwise, &QuantizedCopy::tensor_scale>)
      .def_prop_ro("columnwise_codes", &part<&Q::columnwise, &QuantizedCopy::codes>)
      .def_prop_ro("columnwise_scales", &part<&Q::columnwise, &QuantizedCopy::scales>)
      .def_prop_ro("columnwise_tensor_scale", &part<&Q::columnwise, &QuantizedCopy::tensor_scale>);

  module.def("quantize", &quantize_view, nb::arg("values"), nb::arg("scaling"), nb::kw_only(),
             nb::arg("threads") = 0, nb::arg("count") = false,
             "Values to codes with scales; with count, (saturated, flushed, nan) beside it.");
  module.def("quantize_into", &quantize_view_into, nb::arg("values"), nb::arg("out"), nb::kw_only(),
             nb::arg("threads") = 0, nb::arg("count") = false,
             "The same into memory that is there.");
  module.def("requantize", &requantize_tensor, nb::arg("source"), nb::arg("scaling"), nb::kw_only(),
             nb::arg("threads") = 0, nb::arg("count") = false, "A quantization as another one.");
  module.def(
      "dequantize",
      [](const Q& from, const View& values, int threads) {
        const nb::gil_scoped_release released;
        dequantize_into(from, values, {.threads = threads});
      },
      nb::arg("source"), nb::arg("target"), nb::kw_only(), nb::arg("threads") = 0,
      "Codes times scales, into a view of values.");
  module.def(
      "fp8_quantize",
      [](const View& values, int threads) {
        Fp8Quantized made;
        {
          const nb::gil_scoped_release released;
          made = fp8_quantize(values, {.threads = threads});
        }
        return std::pair(share(made.codes), share(made.scale));
      },
      nb::arg("values"), nb::kw_only(), nb::arg("threads") = 0,
      "E4M3 codes in the order of the values' strides, and one scale.");
  module.def(
      "amax",
      [](const View& values, int threads) {
        const nb::gil_scoped_release released;
        return amax(values, {.threads = threads});
      },
      nb::arg("values"), nb::kw_only(), nb::arg("threads") = 0,
      "The largest magnitude; NaN if there is a NaN.");
}

}  // namespace octavo::python
