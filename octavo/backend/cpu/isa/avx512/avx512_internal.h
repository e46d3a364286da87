// Kernels of AVX-512 that other folders of x86 build upon.
#pragma once

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

EncodeSpan avx512_encode(const Encoder& encoder);
ScaledSpan avx512_encode_scaled(const Encoder& encoder);
DecodeSpan avx512_decode(const Decoder& decoder);
DecodeScaled avx512_decode_scaled(const Decoder& decoder);
MxKernels avx512_mx(const MxBlocks& blocks);
Fp4Rows avx512_fp4(DType source);
std::int64_t avx512_amax16(DType dtype, const void* values, std::int64_t tiles,
                           std::uint32_t* amax);
inline constexpr int kAvx512Rows = 12, kAvx512Cols = 32;
void avx512_f32_tile(const MicrokernelJob& job);  // MR x NR = 12 x 32
extern const GemmMethod kAvx512F32;
const GemmMethod* avx512_gemm(const GemmJob& job);
// Words of four bytes of `count` rows to [words][count], as GemmMethod::interleave.
void avx512_interleave(const std::byte* const* rows, int count, std::int64_t words,
                       std::byte* panel);
const DecodeKernels* avx512_decode_attention(const GemmOperand& operand);
const AttentionMethod* avx512_attention(const AttentionJob& job);

}  // namespace octavo::cpu
