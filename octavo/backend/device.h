// The device interface: kernels, memory, copies and a stream. Everything here is asynchronous on
// exec.stream unless it says otherwise. An error of the device is thrown as Error(device),
// with the failed call and its place; the caller's context stays usable where the device allows it.
#pragma once

#include <cstddef>
#include <string>

#include "octavo/backend/kernels.h"

namespace octavo {

struct DeviceApi {
  const Kernels* kernels = nullptr;

  // Stream-ordered memory: allocated and released in stream order, also while the stream is being
  // captured into a graph. Throws when memory runs out.
  void* (*allocate)(const Exec&, std::size_t bytes) = nullptr;
  void (*release)(const Exec&, void* memory) noexcept = nullptr;

  // Memory for a tensor that outlives the stream: allocated at once, released by free_lasting after
  // all work on the device is done.
  void* (*allocate_lasting)(const Exec&, std::size_t bytes) = nullptr;
  void (*free_lasting)(int device, void* memory) noexcept = nullptr;

  // Between any two memories, host or device.
  void (*copy)(const Exec&, void* to, const void* from, std::size_t bytes) = nullptr;
  // From host memory that may change when the call returns, also while the stream is captured: for
  // a few numbers, as the lengths of sequences are.
  void (*upload)(const Exec&, void* to, const void* from, std::size_t bytes) = nullptr;
  void (*clear)(const Exec&, void* memory, std::size_t bytes) = nullptr;

  void (*wait)(const Exec&) = nullptr;       // blocks until all work before it is done
  bool (*capturing)(const Exec&) = nullptr;  // is the stream being captured? Then no call may block

  // Why a pointer is not memory of this device; empty if it is.
  std::string (*pointer_problem)(const Exec&, const void* memory) = nullptr;
};

}  // namespace octavo
