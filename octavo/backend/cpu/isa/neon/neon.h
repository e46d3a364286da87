// The kernel table of plain NEON, which every aarch64 CPU has.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Isa kNeonIsa;
extern const Kernels kNeonKernels;

}  // namespace octavo::cpu
