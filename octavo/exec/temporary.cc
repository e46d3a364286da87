#include <algorithm>
#include <memory>
#include <utility>

#include "octavo/backend/registry_internal.h"
#include "octavo/exec/temporary_internal.h"

namespace octavo {
namespace {

// The temporaries of this thread's calls: first byte, and one beyond the last.
thread_local std::vector<std::pair<const std::byte*, const std::byte*>> known;

}  // namespace

bool is_temporary(const void* memory) {
  const auto* const at = static_cast<const std::byte*>(memory);
  return std::ranges::any_of(known,
                             [&](const auto& one) { return at >= one.first && at < one.second; });
}

Tensor temporary(const Exec& exec, const View& like) {
  if (exec.device.kind == DeviceKind::cpu)
    return like.dtype == DType::code ? Tensor::codes(like.shape, like.format, like.packed)
                                     : Tensor::values(like.shape, like.dtype);
  const DeviceApi& api = device_api(exec.device);
  View view = like;
  view.strides = dense_strides(like.shape, like.dtype, like.format, like.packed);
  view.read_only = false;
  view.device = exec.device;
  const auto bytes = static_cast<std::size_t>(
      std::max<std::int64_t>(1, dense_bytes(like.shape, like.dtype, like.format, like.packed)));
  view.data = api.allocate(exec, bytes);
  const auto* const first = static_cast<const std::byte*>(view.data);
  known.emplace_back(first, first + bytes);
  const auto release = [exec, &api](void* memory) {
    std::erase_if(known, [&](const auto& one) { return one.first == memory; });
    api.release(exec, memory);
  };
  return Tensor::adopt(view, std::shared_ptr<void>(view.data, release));
}

Tensor temporary_values(const Exec& exec, const Shape& shape, DType dtype) {
  return temporary(exec, value_view(nullptr, dtype, shape));
}

DeviceCopies::~DeviceCopies() {
  for (void* memory : memory_) device_api(exec_.device).release(exec_, memory);
}

const void* DeviceCopies::copied(const void* host, std::size_t bytes) {
  if (host == nullptr || exec_.device.kind == DeviceKind::cpu) return host;
  const DeviceApi& api = device_api(exec_.device);
  memory_.push_back(api.allocate(exec_, std::max<std::size_t>(1, bytes)));
  api.upload(exec_, memory_.back(), host, bytes);
  return memory_.back();
}

}  // namespace octavo
