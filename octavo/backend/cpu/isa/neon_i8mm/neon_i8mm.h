// The kernel table of neon_bf16 plus int8 matrix products (SMMLA): GEMM of FP4 and e2m3 codes as
// integers, attention scores.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Kernels kNeonI8mmKernels;

}  // namespace octavo::cpu
