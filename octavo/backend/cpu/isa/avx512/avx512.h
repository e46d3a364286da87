// The kernel table of AVX-512 (F, BW, DQ, VL).
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Isa kAvx512Isa;
extern const Kernels kAvx512Kernels;

}  // namespace octavo::cpu
