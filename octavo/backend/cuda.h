// The CUDA backend as the registry sees it: built (backend/cuda) or absent (cuda_absent.cc).
#pragma once

#include <string>

#include "octavo/backend/device.h"

namespace octavo::cuda {

// Null when octavo was built without CUDA.
const DeviceApi* api();

// Why this device cannot be used; empty if it can.
std::string device_problem(int index);

// A one-line summary: version, device, driver; or what is missing.
std::string summary();

}  // namespace octavo::cuda
