// What the registry needs of KernelClock.
#pragma once

#include "octavo/backend/kernels.h"

namespace octavo {

// The same backend, or while a clock runs a table whose entries time it.
const Kernels& clocked(const Kernels& chosen);

}  // namespace octavo
