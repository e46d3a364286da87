// Arrays of other libraries through DLPack.
#include "octavo/tensor/dlpack.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <utility>

#include "bind.h"
#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/exec/device_tensor.h"
#include "octavo/format/named_formats.h"

namespace octavo::python {
namespace {

constexpr const char* kVersioned = "dltensor_versioned";
constexpr const char* kLegacy = "dltensor";
constexpr Format kFloat16{
    .exponent_bits = 5, .mantissa_bits = 10, .bias = 15, .has_inf = true, .nan = Nan::ieee};

// Integers come in before it is known of which format they are codes; any format of their size
// serves to describe the memory, and the caller gets to know that they are integers.
std::optional<Kind> integer_kind(const dlpack::DLDataType& type, DlpackImport& import) {
  const bool is_integer = type.code == dlpack::kDLUInt || type.code == dlpack::kDLInt;
  if (!is_integer || type.lanes != 1 || (type.bits != 8 && type.bits != 16)) return std::nullopt;
  import.format = type.bits == 8 ? e4m3fn : kFloat16;
  return text(type.code == dlpack::kDLUInt ? "uint" : "int", int{type.bits});
}

Kind kind_of(const Tensor& tensor) {
  const View& view = tensor.view();
  return is_value(view.dtype) ? Kind(std::string(dtype_name(view.dtype))) : Kind(view.format);
}

template <typename Managed>
SharedTensor take(nb::handle capsule, const char* name, const char* used_name) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
  DlpackImport import;
  std::optional<Kind> kind = integer_kind(managed->dl_tensor.dtype, import);
  SharedTensor shared{from_dlpack(managed, import), {}};
  PyCapsule_SetName(capsule.ptr(), used_name);
  PyCapsule_SetDestructor(capsule.ptr(), nullptr);
  shared.kind = kind ? *kind : kind_of(shared.tensor);
  return shared;
}

SharedTensor from_capsule(nb::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned) != 0) {
    return take<dlpack::DLManagedTensorVersioned>(capsule, kVersioned, "used_dltensor_versioned");
  }
  check(PyCapsule_IsValid(capsule.ptr(), kLegacy) != 0, ErrorCode::wrong_type, "from_dlpack",
        "got something that is not a DLPack capsule, or a used one");
  SharedTensor shared = take<dlpack::DLManagedTensor>(capsule, kLegacy, "used_dltensor");
  // The older form cannot say that it must not be written, so it is not.
  shared.tensor = Tensor::adopt(as_read_only(shared.tensor.view()), shared.tensor.owner());
  return shared;
}

template <typename Managed>
nb::object make_capsule(Managed* managed, const char* name) {
  // A capsule that was not consumed still owns the array; a consumed one has another name.
  PyObject* capsule = PyCapsule_New(managed, name, [](PyObject* self) {
    const char* own_name = PyCapsule_GetName(self);
    for (const char* untaken : {kVersioned, kLegacy}) {
      if (own_name == nullptr || std::string_view(own_name) != untaken) continue;
      auto* array = static_cast<Managed*>(PyCapsule_GetPointer(self, untaken));
      array->deleter(array);
    }
  });
  if (capsule == nullptr) {
    managed->deleter(managed);
    nb::raise_python_error();
  }
  return nb::steal(capsule);
}

using Version = std::pair<int, int>;

// What the array API says of stream=: 1 is the legacy default stream, 2 the one of each thread, -1
// asks for no order at all; none is the default one. Work on the stream that wrote the array is
// ordered already; other streams wait here.
void order_for(const SharedTensor& self, std::optional<std::int64_t> stream) {
  const Device device = self.tensor.view().device;
  if (device.kind == DeviceKind::cpu || !self.written_on || stream == -1) return;
  const std::uintptr_t reader = static_cast<std::uintptr_t>(stream.value_or(1)),
                       writer = *self.written_on;
  const auto plain = [](std::uintptr_t s) { return s == 1 ? 0 : s; };
  const DeviceApi& api = device_api(device);
  const Exec exec{.device = device, .stream = stream_of(writer)};
  if (plain(reader) != plain(writer) && !api.capturing(exec)) api.wait(exec);
}

nb::object to_capsule(const SharedTensor& self, std::optional<std::int64_t> stream,
                      std::optional<Version> max_version, nb::handle /*dl_device*/,
                      std::optional<bool> copy) {
  order_for(self, stream);
  if (copy.value_or(false))
    throw nb::buffer_error("[to_dlpack] copy=True is not offered; copy the result instead");
  if (max_version && max_version->first >= 1)
    return make_capsule(to_dlpack(self.tensor, self.codes), kVersioned);
  return make_capsule(to_dlpack_legacy(self.tensor, self.codes), kLegacy);
}

SharedTensor make_empty(const Kind& kind, const std::vector<std::int64_t>& sizes, bool packed,
                        int cuda, std::uintptr_t stream) {
  const Shape shape = checked_shape(sizes);
  const Device device = device_of(cuda);
  const Format* format = std::get_if<Format>(&kind);
  SharedTensor made{
      format != nullptr
          ? codes_on(device, shape, *format, packed, stream_of(stream))
          : values_on(device, shape, parse_dtype(std::get<std::string>(kind)), stream_of(stream)),
      kind};
  if (cuda >= 0) made.written_on = stream;
  return made;
}

// Memory of a Python object, which lives as long as the tensor does.
SharedTensor borrow(const View& view, nb::object owner) {
  return share(Tensor::adopt(view, kept_alive(std::move(owner))));
}

}  // namespace

std::shared_ptr<void> kept_alive(nb::object owner) {
  return {owner.release().ptr(), [](void* object) {
            const nb::gil_scoped_acquire held;
            Py_DECREF(static_cast<PyObject*>(object));
          }};
}

SharedTensor share(const Tensor& tensor) { return {tensor, kind_of(tensor)}; }

void bind_dlpack(nb::module_& module) {
  nb::class_<SharedTensor>(module, "Tensor",
                           "Memory that the library owns, or that came as a DLPack capsule.")
      .def_static("empty", &make_empty, nb::arg("kind"), nb::arg("shape"),
                  nb::arg("packed") = false, nb::arg("cuda") = -1, nb::arg("stream") = 0,
                  "New memory, not initialised. kind: a Format, or a value type by name. cuda: the "
                  "index of a device, and the stream it will be written on.")
      .def_static("borrow", &borrow, nb::arg("view"), nb::arg("owner"),
                  "The memory of a view, which the owner keeps alive.")
      .def_static("from_dlpack", &from_capsule, nb::arg("capsule"),
                  "Takes the array in a capsule over.")
      .def_prop_ro("address",
                   [](const SharedTensor& self) {
                     return reinterpret_cast<std::uintptr_t>(self.tensor.view().data);
                   })
      .def_ro("kind", &SharedTensor::kind, "A Format, or a dtype by name.")
      .def_rw("written_on", &SharedTensor::written_on, nb::arg("stream").none(),
              "On a device: the stream that writes it, if octavo has to order readers after it.")
      .def_prop_ro(
          "shape", [](const SharedTensor& self) { return list_of(self.tensor.shape()); },
          "In elements.")
      .def_prop_ro(
          "strides", [](const SharedTensor& self) { return list_of(self.tensor.view().strides); },
          "In bytes.")
      .def_prop_ro(
          "cuda", [](const SharedTensor& self) { return cuda_index(self.tensor.view().device); },
          "The index of the device; -1 is the CPU.")
      .def_prop_ro("nbytes", [](const SharedTensor& self) { return self.tensor.nbytes(); })
      .def_prop_ro("packed", [](const SharedTensor& self) { return self.tensor.view().packed; })
      .def_prop_ro("read_only",
                   [](const SharedTensor& self) { return self.tensor.view().read_only; })
      .def(
          "as_bytes",
          [](const SharedTensor& self) {
            return SharedTensor{self.tensor, self.kind, DlpackCodes::bytes, self.written_on};
          },
          "The same memory; __dlpack__ calls codes plain integers.")
      .def("__dlpack__", &to_capsule, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none())
      .def("__dlpack_device__", [](const SharedTensor& self) {
        const int cuda = cuda_index(self.tensor.view().device);
        return cuda < 0 ? std::pair<int, int>(dlpack::kDLCPU, 0)
                        : std::pair<int, int>(dlpack::kDLCUDA, cuda);
      });
}

}  // namespace octavo::python
