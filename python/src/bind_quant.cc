// quantize, dequantize and requantize. Results stay in the library's memory; Python accesses it
// through Tensors.
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
#include "nn_run.h"
#include "octavo/base/error.h"
#include "octavo/quant/fp8_quantize.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/quantized_tensor.h"

namespace octavo::python {
namespace {

using Sizes = std::vector<std::int64_t>;
using Found = std::optional<CountTuple>;

// Runs `work` without the GIL, and returns its counts.
template <typename Work>
Found counted(Device device, int threads, bool count, std::uintptr_t stream, Work&& work) {
  const nb::gil_scoped_release released;
  Counting counting(count, device, stream);
  work(QuantizeOptions{.threads = threads, .counts = counting.at(), .stream = stream_of(stream)});
  return counting.found();
}

// The numbers of a dense vector of f32; none, where there is no view.
std::span<const float> column_weights_of(const View* weights, Device device) {
  if (weights == nullptr) return {};
  check(weights->dtype == DType::f32 && weights->shape.rank() == 1 &&
            (weights->shape[0] <= 1 || weights->strides[0] == sizeof(float)) &&
            weights->device == device,
        ErrorCode::invalid_argument, "quantize",
        "column_weights must be a contiguous vector of float32, where the values are");
  return {static_cast<const float*>(weights->data), static_cast<std::size_t>(weights->shape[0])};
}

Found quantize_view_into(const View& values, QuantizedTensor& out, int threads, bool count,
                         std::uintptr_t stream, const View* column_weights) {
  check_writable(out);
  return counted(values.device, threads, count, stream, [&](QuantizeOptions options) {
    options.column_weights = column_weights_of(column_weights, values.device);
    quantize_into(values, out, options);
  });
}

Found requantize_tensor_into(const QuantizedTensor& from, QuantizedTensor& out, int threads,
                             bool count, std::uintptr_t stream) {
  check_writable(out);
  return counted(from.device(), threads, count, stream,
                 [&](const QuantizeOptions& options) { requantize_into(from, out, options); });
}

// `allocate`, if given, makes so many bytes of memory and returns their address and their owner.
QuantizedTensor empty_quantized(const Sizes& shape, const std::string& source,
                                const Scaling& scaling, nb::object allocate, int cuda) {
  const Shape sizes = checked_shape(shape);
  if (allocate.is_none())
    return make_quantized(sizes, parse_dtype(source), scaling, device_of(cuda));
  return make_quantized(sizes, parse_dtype(source), scaling, maker(std::move(allocate), cuda));
}

QuantizedTensor with_usage(const QuantizedTensor& self, bool rowwise, bool columnwise) {
  QuantizedTensor kept = self;
  check((rowwise || columnwise) && (self.rowwise.exists() || !rowwise) &&
            (self.columnwise.exists() || !columnwise),
        ErrorCode::invalid_argument, "quantized", "expected copies that are there, at least one");
  if (!rowwise) kept.rowwise = {};
  if (!columnwise) kept.columnwise = {};
  kept.scaling.rowwise = rowwise;
  kept.scaling.columnwise = columnwise;
  return kept;
}

template <QuantizedCopy QuantizedTensor::*kCopy, Tensor QuantizedCopy::*kPart>
std::optional<SharedTensor> part(const QuantizedTensor& self) {
  return share_if_there(self.*kCopy.*kPart);
}

}  // namespace

std::optional<SharedTensor> share_if_there(const Tensor& tensor) {
  return tensor.owner() != nullptr ? std::optional(share(tensor)) : std::nullopt;
}

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
          "empty", &empty_quantized, nb::arg("shape"), nb::arg("source"), nb::arg("scaling"),
          nb::arg("allocate").none() = nb::none(), nb::arg("cuda") = -1,
          "Memory for a quantization, not initialised; allocate(bytes), if given, makes it and "
          "returns (address, owner).")
      .def_static(
          "of",
          [](const Sizes& shape, const Scaling& scaling, const SharedTensor& codes,
             const SharedTensor& scales, const std::optional<SharedTensor>& tensor_scale,
             std::uintptr_t stream, bool validate) {
            return quantized_from(checked_shape(shape), scaling, codes.tensor, scales.tensor,
                                  tensor_scale ? tensor_scale->tensor : Tensor(), stream_of(stream),
                                  validate);
          },
          nb::arg("shape"), nb::arg("scaling"), nb::arg("codes"), nb::arg("scales"),
          nb::arg("tensor_scale").none() = nb::none(), nb::arg("stream") = 0,
          nb::arg("validate") = true,
          "External codes and scales, checked; validate: check scales for negative values, too.")
      .def_prop_ro(
          "cuda", [](const Q& self) { return cuda_index(self.device()); },
          "The index of the device that it is on; -1 is the CPU.")
      .def(
          "to_host",
          [](const Q& self, std::uintptr_t stream) {
            const nb::gil_scoped_release released;
            return to_host(self, stream_of(stream));
          },
          nb::arg("stream") = 0, "A copy on the CPU; waits for the device.")
      .def(
          "transposed", [](const Q& self) { return transposed(self); },
          "The columnwise copy as a tensor of its own; nothing is copied.")
      .def("with_usage", &with_usage, nb::arg("rowwise"), nb::arg("columnwise"),
           "The same memory with these copies only; they must be there.")
      .def(
          "with_source",
          [](const Q& self, const std::string& source) {
            Q other = self;
            other.source = parse_dtype(source);
            return other;
          },
          nb::arg("source"), "The same memory, of values of another type.")
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

  module.def("quantize_into", &quantize_view_into, nb::arg("values"), nb::arg("out"), nb::kw_only(),
             nb::arg("threads") = 0, nb::arg("count") = false, nb::arg("stream") = 0,
             nb::arg("column_weights").none() = nb::none(),
             "Values to codes with scales; with count, (saturated, flushed, nan).");
  module.def("requantize_into", &requantize_tensor_into, nb::arg("source"), nb::arg("out"),
             nb::kw_only(), nb::arg("threads") = 0, nb::arg("count") = false, nb::arg("stream") = 0,
             "A quantization as another one.");
  module.def(
      "dequantize",
      [](const Q& from, const View& values, int threads, std::uintptr_t stream) {
        const nb::gil_scoped_release released;
        dequantize_into(from, values, {.threads = threads, .stream = stream_of(stream)});
      },
      nb::arg("source"), nb::arg("target"), nb::kw_only(), nb::arg("threads") = 0,
      nb::arg("stream") = 0, "Codes times scales, into a view of values.");
  module.def(
      "fp8_quantize",
      [](const View& values, const Scaling& scaling, int threads, std::uintptr_t stream) {
        Fp8Quantized made;
        {
          const nb::gil_scoped_release released;
          made = fp8_quantize(values, {.threads = threads, .stream = stream_of(stream)}, scaling);
        }
        return std::pair(share(made.codes), share(made.scale));
      },
      nb::arg("values"), nb::arg("scaling"), nb::kw_only(), nb::arg("threads") = 0,
      nb::arg("stream") = 0, "Codes in the order of the values' strides, and one scale.");
  module.def(
      "amax",
      [](const View& values, int threads, std::uintptr_t stream) {
        const nb::gil_scoped_release released;
        return amax(values, {.threads = threads, .stream = stream_of(stream)});
      },
      nb::arg("values"), nb::kw_only(), nb::arg("threads") = 0, nb::arg("stream") = 0,
      "The largest magnitude; NaN if there is a NaN. Waits for a device.");
}

}  // namespace octavo::python
