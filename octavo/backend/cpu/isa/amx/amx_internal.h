// Kernels that the files of this folder share.
#pragma once

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/gemm/gemm.h"

namespace octavo::cpu {

// Codes of a format to panels of bf16 for tiles; null where there is none.
PackCodes amx_pack_codes(const PackedCodes& codes);

// A panel of A by codes of B that are decoded once; runs are multiples of kAmxMultiplyRun.
inline constexpr std::int64_t kAmxMultiplyRun = 128;
MultiplyCodes amx_multiply_codes(const PackedCodes& codes);

// Few rows of A by rows of B as they are; runs are multiples of kAmxLineRun.
inline constexpr std::int64_t kAmxLineRun = 128;
MultiplyLines amx_multiply_lines(const Matrix& elements, const Matrix* scales, std::int64_t tile);

// GEMV of a bf16 row by codes of a format, a byte each or two in a byte; null where there is none.
DotKernel amx_dot_codes(const Format& format);
DotKernel amx_dot_nibbles(const Format& format);

// Integer products, exact; null where a job is not made of integers.
const GemmMethod* amx_i8_method(const GemmJob& job);

extern const PanelKernels kAmxPanels;
// Decode attention of queries that are exact in bf16.
const DecodeKernels* amx_decode_attention(const GemmOperand& operand);
const AttentionMethod* amx_attention(const AttentionJob& job);

}  // namespace octavo::cpu
