// Memory of a call on its device: tensors that are released in stream order, and copies of numbers
// of the host. All of it also works while the stream is captured into a graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "octavo/backend/kernels.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// A dense, uninitialised tensor of the type and shape of `like`. On a device it must die in the
// thread that made it, and before its stream; its memory passes checks of pointers even where the
// device does not know it yet, because a graph will allocate it.
[[nodiscard]] Tensor temporary(const Exec& exec, const View& like);
[[nodiscard]] Tensor temporary_values(const Exec& exec, const Shape& shape, DType dtype);
[[nodiscard]] bool is_temporary(const void* memory);

// Copies of arrays of the host in the memory of a device, as long as this lives; on a CPU the
// arrays themselves. The host's may be gone when `of` returns.
class DeviceCopies {
 public:
  explicit DeviceCopies(const Exec& exec) : exec_(exec) {}
  ~DeviceCopies();
  DeviceCopies(const DeviceCopies&) = delete;
  DeviceCopies& operator=(const DeviceCopies&) = delete;

  // Null stays null.
  template <typename T>
  [[nodiscard]] const T* of(const T* host, std::int64_t count) {
    return static_cast<const T*>(copied(host, static_cast<std::size_t>(count) * sizeof(T)));
  }

 private:
  const void* copied(const void* host, std::size_t bytes);

  const Exec exec_;
  std::vector<void*> memory_;
};

}  // namespace octavo
