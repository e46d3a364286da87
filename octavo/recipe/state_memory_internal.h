// State of quantizers as numbers: f32 in the caller's memory, on the host or on a device.
#pragma once

#include <span>
#include <vector>

#include "octavo/exec/device_tensor.h"
#include "octavo/exec/place_internal.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// Element `at` of the first row, as a view of one.
inline View state_element(const Tensor& tensor, std::size_t at) {
  View view = tensor.view();
  view.data = static_cast<float*>(view.data) + at;
  view.shape = {1};
  view.strides = {sizeof(float)};
  return view;
}

// Both wait for a device.
inline void write_state(const Tensor& to, std::span<const float> numbers, void* stream) {
  copy_and_wait({.device = to.view().device, .stream = stream}, to.view().data, numbers.data(),
                numbers.size_bytes());
}

inline std::vector<float> read_state(const View& from, void* stream) {
  const Tensor host =
      from.device.kind == DeviceKind::cpu ? Tensor::adopt(from, nullptr) : to_host(from, stream);
  const std::span<float> numbers = host.span<float>();
  return {numbers.begin(), numbers.end()};
}

}  // namespace octavo
