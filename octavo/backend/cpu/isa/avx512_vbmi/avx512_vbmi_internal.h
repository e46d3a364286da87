// Kernels of AVX-512 with VBMI that AMX builds upon.
#pragma once

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"

namespace octavo::cpu {

const DecodeKernels* avx512_vbmi_decode_attention(const GemmOperand& operand);
extern const AttentionMethod kAvx512VbmiAttention;  // f32
const AttentionMethod* avx512_vbmi_attention(const AttentionJob& job);

}  // namespace octavo::cpu
