// What the registry asks the clock.
#pragma once

#include "octavo/backend/kernels.h"

namespace octavo {

// The same backend, or one that times it where a clock runs.
const Kernels& clocked(const Kernels& chosen);

}  // namespace octavo
