// Kernels that the folders built on this one share.
#pragma once

#include "octavo/backend/cpu/isa/neon_bf16/neon_bf16.h"
#include "octavo/backend/cpu/isa/neon_dot/neon_dot_internal.h"

namespace octavo::cpu {

// Null where an operand is not exact in bf16.
const GemmMethod* neon_bf16_method(const GemmJob& job);
DotKernel neon_bf16_dot_codes(const Format& format);
// Of packed weights only; the second by one row of A.
PackCodes neon_bf16_unpack_codes(const PackedCodes& codes);
MultiplyCodes neon_bf16_multiply_codes(const PackedCodes& codes);
// Its microkernel, in assembly, and the same as a compiler makes it of C++: the same bits.
void neon_bf16_tile(const MicrokernelJob& job);
void neon_bf16_tile_compiled(const MicrokernelJob& job);

// The softmax and the weighted values of a query block of 12, in bf16 (attention.h), and whether V
// and the type of P allow that.
bool neon_bf16_softmax(const SoftmaxJob& job);
void neon_bf16_weigh(const MicrokernelJob& job);
bool takes_bf16_values(const AttentionJob& job);
// Decode attention: bf16 by BFMMLA, where the query rows are exact in it; e4m3 as in neon_fp16.
const DecodeKernels* neon_bf16_decode_attention(const GemmOperand& operand);
// Everything in bf16 where Q and K are exact in it too; else the method of neon_dot.
const AttentionMethod* neon_bf16_attention(const AttentionJob& job);

}  // namespace octavo::cpu
