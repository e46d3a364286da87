// The kernel table of AVX2, F16C and FMA.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Isa kAvx2Isa;
extern const Kernels kAvx2Kernels;

}  // namespace octavo::cpu
