// The kernel table of neon_dot plus bf16 matrix products (BFMMLA).
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Kernels kNeonBf16Kernels;

}  // namespace octavo::cpu
