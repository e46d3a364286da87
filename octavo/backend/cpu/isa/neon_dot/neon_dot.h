// The kernel table of neon_fp16 plus int8 dot products (asimddp): GEMM of FP4 and e2m3 codes as
// integers.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Kernels kNeonDotKernels;

}  // namespace octavo::cpu
