// The kernel table of AVX-512 with byte permutations (VBMI).
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Isa kAvx512VbmiIsa;
extern const Kernels kAvx512VbmiKernels;

}  // namespace octavo::cpu
