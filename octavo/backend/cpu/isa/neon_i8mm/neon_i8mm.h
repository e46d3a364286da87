// What neon_bf16 does, and products of four-bit codes as integers in pairs (SMMLA).
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Kernels kNeonI8mmKernels;

}  // namespace octavo::cpu
