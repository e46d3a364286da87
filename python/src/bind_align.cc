// Exponent alignment of MX tensors.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/quant/align_exponents.h"

namespace octavo::python {
namespace {

AlignTo parse_align_to(const std::string& to) {
  if (to == "rows") return AlignTo::rows;
  check(to == "blocks", ErrorCode::invalid_argument, "align_exponents", "got to = '", shown(to),
        "'; expected 'rows' or 'blocks'");
  return AlignTo::blocks_of_128;
}

// Runs `work` without the GIL, and returns the number of changed elements if requested, which
// synchronizes with a device.
template <typename Work>
std::optional<std::int64_t> counting(bool count, Device device, std::uintptr_t stream,
                                     Work&& work) {
  const nb::gil_scoped_release released;
  if (!count) {
    work(nullptr);
    return std::nullopt;
  }
  std::int64_t changed = 0;
  if (device.kind == DeviceKind::cpu) {
    work(&changed);
    return changed;
  }
  static_assert(sizeof(double) == sizeof changed);
  double zero[1] = {};  // eight bytes that are zero
  const Tensor there = to_device(view_of(std::span<double>(zero)), device, stream_of(stream));
  work(static_cast<std::int64_t*>(there.view().data));
  const Tensor back = to_host(there.view(), stream_of(stream));
  std::memcpy(&changed, back.view().data, sizeof changed);
  return changed;
}

}  // namespace

void bind_align(nb::module_& module) {
  module.def(
      "aligned_scaling",
      [](const Scaling& mx, const std::string& to) {
        return aligned_scaling(mx, parse_align_to(to));
      },
      nb::arg("mx"), nb::arg("to"),
      "The Scaling of aligned codes and scales; to is rows or blocks.");
  module.def(
      "align_exponents_into",
      [](const QuantizedTensor& mx, QuantizedTensor& out, int threads, bool count,
         std::uintptr_t stream) {
        check_writable(out);
        return counting(count, mx.device(), stream, [&](std::int64_t* changed) {
          align_exponents_into(mx, out, {.threads = threads, .stream = stream_of(stream)}, changed);
        });
      },
      nb::arg("mx"), nb::arg("out"), nb::kw_only(), nb::arg("threads") = 0,
      nb::arg("count") = false, nb::arg("stream") = 0,
      "MX with aligned exponents; with count, how many elements changed.");
  module.def(
      "quantize_aligned_into",
      [](const View& values, const Scaling& mx, QuantizedTensor& out, int threads, bool count,
         std::uintptr_t stream) {
        check_writable(out);
        return counting(count, values.device, stream, [&](std::int64_t* changed) {
          quantize_aligned_into(values, mx, out, {.threads = threads, .stream = stream_of(stream)},
                                changed);
        });
      },
      nb::arg("values"), nb::arg("mx"), nb::arg("out"), nb::kw_only(), nb::arg("threads") = 0,
      nb::arg("count") = false, nb::arg("stream") = 0,
      "Values to MX with aligned exponents; with count, how many elements alignment changed.");
}

}  // namespace octavo::python
