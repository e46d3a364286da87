// The kernel table of AVX-512 with VBMI and AMX: bf16 matrix products in tiles.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Kernels kAmxKernels;

}  // namespace octavo::cpu
