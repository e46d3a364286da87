// The kernel table of NEON with half-precision vector arithmetic (asimdhp): eight lanes instead of
// four for formats that lie well inside f16.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Isa kNeonFp16Isa;
extern const Kernels kNeonFp16Kernels;

}  // namespace octavo::cpu
