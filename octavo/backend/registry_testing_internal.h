// For tests above the kernel interface: another device in the place of CUDA's.
#pragma once

#include "octavo/backend/device.h"

namespace octavo::testing {

struct StandIn {
  const DeviceApi* api = nullptr;
  int device_count = 1;
};

// Null restores the built one. Not for use while other threads work on devices.
void set_stand_in(const StandIn* instead);

// The backend of CPU work where a call names none, whatever OCTAVO_BACKEND says; null: the
// registry's choice.
void set_cpu_backend(const Kernels* instead);

}  // namespace octavo::testing
