// Kernels shared among the files of this folder and the folders built on it.
#pragma once

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// From bf16 only. Null for any other format or source, and for stochastic rounding.
EncodeSpan neon_fp16_encode_e5m2(const Encoder& encoder);

// For E4M3 and its kin where only finite values matter, else null.
ScaledSpan neon_fp16_encode_scaled_e4m3(const Encoder& encoder);

// MX kernels in 16-bit lanes; null where they do not apply.
MxRows neon_fp16_mx_rows(const MxBlocks& blocks);
MxPanelSpan neon_fp16_mx_panel(const MxBlocks& blocks);
// From f32 to E4M3 and its kin.
MxRows neon_fp16_mx_rows_e4m3(const MxBlocks& blocks);
MxPanelSpan neon_fp16_mx_panel_e4m3(const MxBlocks& blocks);

// The f16 method where the accumulator is f16; else that of plain NEON.
const GemmMethod* neon_fp16_gemm(const GemmJob& job);

// For e4m3fn and e5m2, else null.
PackCodes neon_fp16_pack_codes(const PackedCodes& codes);

void neon_fp16_narrow(const float* from, std::byte* to, std::int64_t n);
void neon_fp16_widen(const std::byte* from, float* to, std::int64_t n);  // eight at a time

// The softmax and the weighted values of a query block of 24, in f16 (attention.h).
bool neon_fp16_softmax(const SoftmaxJob& job);
void neon_fp16_weigh(const MicrokernelJob& job);
void neon_fp16_score(const MicrokernelJob& job);
// Scores that stay in f16.
bool neon_fp16_softmax_narrow(const SoftmaxJob& job);
void neon_fp16_score_narrow(const MicrokernelJob& job);
extern const CodeKernels kNeonFp16Codes;
extern const AttentionMethod kNeonFp16Wide;        // all in f32
extern const AttentionMethod kNeonFp16WideScores;  // in f32; weights in f16
const DecodeKernels* neon_fp16_decode_attention(const GemmOperand& operand);
extern const DecodeKernels kNeonFp16DecodeE4m3, kNeonFp16DecodeBf16;
void neon_fp16_interleave(const std::uint16_t* const* rows, int count, std::int64_t n,
                          std::uint16_t* panel);
// P in f16 where that is precise enough; else the method of plain NEON.
const AttentionMethod* neon_fp16_attention(const AttentionJob& job);

}  // namespace octavo::cpu
