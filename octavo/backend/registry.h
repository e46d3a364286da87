// The registry of backends: which are compiled in, which can run on this machine, and which one is
// chosen.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/backend/device.h"
#include "octavo/backend/kernels.h"
#include "octavo/base/macros.h"

namespace octavo {

struct BackendInfo {
  const Kernels* kernels = nullptr;  // null when it was not built
  std::string name;
  bool usable = false;
  std::string reason;  // why it is or is not usable
};

// Fastest first; `reference` is last and always usable.
OCTAVO_API std::vector<BackendInfo> backends();

// The backend that runs CPU work: the first usable one, or the one that OCTAVO_BACKEND names.
// Throws Error(unsupported) when that name is unknown or cannot run here.
OCTAVO_API const Kernels& cpu_backend();

// A backend by name; throws Error as cpu_backend does.
OCTAVO_API const Kernels& backend_named(std::string_view name);

OCTAVO_API const Kernels& reference_backend();

// The kernels, memory and streams of a device; throws Error(unsupported) with the reason: built
// without CUDA, no driver, no such device, or one that the kernels were not built for.
OCTAVO_API const DeviceApi& device_api(Device device);

// One line about CUDA: version, device, driver; or what is missing.
OCTAVO_API std::string cuda_summary();

}  // namespace octavo
