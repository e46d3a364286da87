// What neon_dot does, and products of codes in bf16 (BFMMLA).
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Kernels kNeonBf16Kernels;

}  // namespace octavo::cpu
