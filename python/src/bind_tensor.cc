// Views of memory that Python objects own: the caller keeps those objects alive during the call.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <span>
#include <utility>

#include "bind.h"
#include "octavo/base/error.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/tensor/dtype.h"

namespace octavo::python {

Shape checked_shape(const std::vector<std::int64_t>& sizes) {
  return Shape(std::span<const std::int64_t>(sizes));
}

std::vector<std::int64_t> list_of(const Shape& shape) {
  return {shape.sizes().begin(), shape.sizes().end()};
}

Counting::Counting(bool wanted, Device device, std::uintptr_t stream)
    : wanted_(wanted), stream_(stream) {
  static_assert(sizeof(Counts) == 3 * sizeof(double));
  if (wanted && device.kind != DeviceKind::cpu)
    there_ = values_on(device, {3}, DType::f64, stream_of(stream));
}

Counts* Counting::at() {
  if (!wanted_) return nullptr;
  return there_.owner() == nullptr ? &host_ : static_cast<Counts*>(there_.view().data);
}

std::optional<CountTuple> Counting::found() {
  if (!wanted_) return std::nullopt;
  if (there_.owner() != nullptr) {
    const Tensor back = to_host(there_.view(), stream_of(stream_));
    std::memcpy(&host_, back.view().data, sizeof host_);
  }
  return count_tuple(host_);
}

namespace {

// What NumPy tells C of an array, by its documentation of __array_struct__. Asking for it takes a
// tenth of the time of __array_interface__, which builds a dictionary.
struct ArrayInterface {
  int two;  // is 2, as a check
  int rank;
  char type_kind;
  int item_bytes;
  int flags;
  Py_intptr_t* shape;
  Py_intptr_t* strides;
  void* data;
  PyObject* description;
};
constexpr int kWriteable = 0x0400;

std::pair<std::uintptr_t, bool> array_memory(nb::handle array_struct) {
  const auto* array =
      static_cast<const ArrayInterface*>(PyCapsule_GetPointer(array_struct.ptr(), nullptr));
  if (array == nullptr) nb::raise_python_error();
  check(array->two == 2, ErrorCode::wrong_type, "array_memory",
        "got a capsule that is not NumPy's");
  return {reinterpret_cast<std::uintptr_t>(array->data), (array->flags & kWriteable) != 0};
}

View make_view(std::uintptr_t address, const Kind& kind, const std::vector<std::int64_t>& shape,
               const std::vector<std::int64_t>& strides, bool packed, bool read_only, int cuda) {
  View view;
  view.device = device_of(cuda);
  view.data = reinterpret_cast<void*>(address);
  if (const Format* format = std::get_if<Format>(&kind)) {
    view.dtype = DType::code;
    view.format = *format;
  } else {
    view.dtype = parse_dtype(std::get<std::string>(kind));
  }
  view.shape = checked_shape(shape);
  view.strides = checked_shape(strides);
  view.packed = packed;
  view.read_only = read_only;
  return view;
}

}  // namespace

void bind_tensor(nb::module_& module) {
  module.def("array_memory", &array_memory, nb::arg("array_struct"),
             "The address of a NumPy array and whether it may be written, from its "
             "__array_struct__.");
  nb::class_<View>(module, "View", "The caller's memory, as the library sees it. Owns nothing.")
      .def(
          "__init__",
          [](View* self, std::uintptr_t address, const Kind& kind,
             const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
             bool packed, bool read_only, int cuda) {
            new (self) View(make_view(address, kind, shape, strides, packed, read_only, cuda));
          },
          nb::arg("address"), nb::arg("kind"), nb::arg("shape"), nb::arg("strides"),
          nb::arg("packed") = false, nb::arg("read_only") = false, nb::arg("cuda") = -1,
          "kind: a Format, or a value type by name. Strides are in bytes, one per dimension. cuda: "
          "the index of the device; -1 is the CPU.");
}

}  // namespace octavo::python
