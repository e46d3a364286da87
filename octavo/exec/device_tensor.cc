#include "octavo/exec/device_tensor.h"

#include <array>
#include <cstring>
#include <memory>

#include "octavo/base/error.h"
#include "octavo/exec/collapse_internal.h"
#include "octavo/exec/place_internal.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

Tensor on_device(View view, Device device, void* stream) {
  const DeviceApi& api = device_api(device);
  const Exec exec{.device = device, .stream = stream};
  check_may_wait(exec, "tensor",
                 "no memory can be made that outlives it; give the result's memory (out), made "
                 "before the capture began");
  const std::int64_t bytes = dense_bytes(view.shape, view.dtype, view.format, view.packed);
  view.device = device;
  view.data = api.allocate_lasting(exec, bytes > 0 ? static_cast<std::size_t>(bytes) : 1);
  const auto release = [&api, index = device.index](void* p) { api.free_lasting(index, p); };
  return Tensor::adopt(view, std::shared_ptr<void>(view.data, release));
}

Tensor like(const View& view, Device device, void* stream) {
  if (view.dtype == DType::code)
    return codes_on(device, view.shape, view.format, view.packed, stream);
  return values_on(device, view.shape, view.dtype, stream);
}

// A copy of all memory that a view without gaps covers, from its first byte.
Tensor copied(const View& from, Device device, const Exec& exec, std::string_view op) {
  check_view(from, op, "the tensor");
  const std::array<NamedView, 1> views{{{&from, "the tensor"}}};
  (void)common_device(views, op);
  const Tensor to = like(from, device, exec.stream);
  View view = to.view();
  view.strides = from.strides;
  if (to.nbytes() == 0) return Tensor::adopt(view, to.owner());
  const MemorySpan span = memory_span(from);
  check(span.bytes == to.nbytes(), ErrorCode::invalid_argument, op,
        "the tensor has gaps or repeated elements; make it contiguous first");
  copy_and_wait(exec, view.data, static_cast<const std::byte*>(from.data) - span.before,
                static_cast<std::size_t>(to.nbytes()));
  view.data = static_cast<std::byte*>(view.data) + span.before;
  return Tensor::adopt(view, to.owner());
}

}  // namespace

Tensor values_on(Device device, const Shape& shape, DType dtype, void* stream) {
  if (device.kind == DeviceKind::cpu) return Tensor::values(shape, dtype);
  return on_device(value_view(nullptr, dtype, shape), device, stream);
}

Tensor codes_on(Device device, const Shape& shape, const Format& format, bool packed,
                void* stream) {
  if (device.kind == DeviceKind::cpu) return Tensor::codes(shape, format, packed);
  return on_device(code_view(nullptr, format, shape, packed), device, stream);
}

Tensor to_device(const View& from, Device device, void* stream) {
  constexpr std::string_view kOp = "to_device";
  check(device.kind != DeviceKind::cpu, ErrorCode::invalid_argument, kOp,
        "got the CPU; expected a device; use to_host");
  return copied(from, device, {.device = device, .stream = stream}, kOp);
}

Tensor to_host(const View& from, void* stream) {
  constexpr std::string_view kOp = "to_host";
  const Exec exec{.device = from.device, .stream = stream};
  check_may_wait(exec, kOp, "nothing can be copied to the host; do it after the graph has run");
  return copied(from, {}, exec, kOp);
}

}  // namespace octavo
