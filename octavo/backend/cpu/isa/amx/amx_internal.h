// Kernels that the files of this folder share.
#pragma once

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/gemm/gemm.h"

namespace octavo::cpu {

// GEMV of a bf16 row by codes of a format; null where there is none.
DotKernel amx_dot_codes(const Format& format);

extern const PanelKernels kAmxPanels;
const AttentionMethod* amx_attention(const AttentionJob& job);

}  // namespace octavo::cpu
