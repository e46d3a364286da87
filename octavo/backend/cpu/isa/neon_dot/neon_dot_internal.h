// Kernels that the folders built on this one share.
#pragma once

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa/neon_dot/neon_dot.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16.h"
#include "octavo/backend/cpu/isa/neon_fp16/neon_fp16_internal.h"

namespace octavo::cpu {

const GemmMethod* neon_dot_gemm(const GemmJob& job);
void neon_dot_i8(const DotJob& job);
void neon_dot_look_up(const std::int8_t* table, const std::uint8_t* codes, std::int64_t n,
                      std::int8_t* packed);

// Scores of int8 limbs (attention_limbs.h), [8 keys][12 queries].
void neon_dot_score(const MicrokernelJob& job);
// Limbs where scores of codes are too large for f16; else the method of neon_fp16.
const AttentionMethod* neon_dot_attention(const AttentionJob& job);

}  // namespace octavo::cpu
