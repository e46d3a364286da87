// The backends that a test of host memory runs on: every CPU backend that this machine can run, and
// a CUDA device, if there is one, through staging.
#pragma once

#include <vector>

#include "octavo/backend/registry.h"

namespace octavo::support {

// OCTAVO_TEST_BACKEND keeps the one of that name, or else those whose name has that in it; throws
// if none is left, because a test of nothing would pass.
std::vector<BackendInfo> every_backend();

// Adds a kernel table of the program's own (tests/simde), before main: true.
bool offer_backend(const Kernels& kernels);

// Does it run on a device? Then the number of threads has no effect.
bool is_staged(const BackendInfo& backend);

}  // namespace octavo::support
