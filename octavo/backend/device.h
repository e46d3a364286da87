// A device as callers of the kernel door see it: besides kernels it has memory of its own and a
// queue in which work is done in order. Everything here is asynchronous on exec.stream unless it
// says otherwise. What the device refuses is thrown as Error(unsupported), with the call that was
// refused and where; the caller's context stays usable where the device allows it.
#pragma once

#include <cstddef>
#include <string>

#include "octavo/backend/kernels.h"

namespace octavo {

struct DeviceApi {
  const Kernels* kernels = nullptr;

  // Memory that is usable in the order of the stream, and released in it; also while the stream is
  // being captured into a graph. Throws when there is not enough of it.
  void* (*allocate)(const Exec&, std::size_t bytes) = nullptr;
  void (*release)(const Exec&, void* memory) noexcept = nullptr;

  // Memory for a tensor that outlives the stream: allocated at once, released by free_lasting after
  // all work on the device is done.
  void* (*allocate_lasting)(const Exec&, std::size_t bytes) = nullptr;
  void (*free_lasting)(int device, void* memory) noexcept = nullptr;

  // Between any two memories, host or device.
  void (*copy)(const Exec&, void* to, const void* from, std::size_t bytes) = nullptr;
  void (*clear)(const Exec&, void* memory, std::size_t bytes) = nullptr;

  void (*wait)(const Exec&) = nullptr;       // until everything before it is done
  bool (*capturing)(const Exec&) = nullptr;  // is the stream being captured? Then nothing may wait

  // What is wrong with a pointer that is said to be memory of this device; empty if nothing is.
  std::string (*pointer_problem)(const Exec&, const void* memory) = nullptr;
};

}  // namespace octavo
