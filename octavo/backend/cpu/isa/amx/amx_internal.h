// Kernels that the files of this folder share.
#pragma once

#include "octavo/backend/cpu/gemm/gemm.h"

namespace octavo::cpu {

// GEMV of a bf16 row by codes of a format; null where there is none.
DotKernel amx_dot_codes(const Format& format);

}  // namespace octavo::cpu
