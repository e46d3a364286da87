// Kernels shared among the files of this folder.
#pragma once

#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16_internal.h"
#include "octavo/backend/cpu/isa/neon_i8mm/neon_i8mm.h"

namespace octavo::cpu {

// Scores of int8 limbs, [8 keys][12 queries] (attention.h).
void neon_i8mm_score(const MicrokernelJob& job);
// Scores of codes as integers where that costs least; else the method of neon_bf16.
const AttentionMethod* neon_i8mm_attention(const AttentionJob& job);

}  // namespace octavo::cpu
