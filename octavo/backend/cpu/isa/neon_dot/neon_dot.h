// What neon_fp16 does, and products of four-bit codes as integers (asimddp).
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Kernels kNeonDotKernels;

}  // namespace octavo::cpu
