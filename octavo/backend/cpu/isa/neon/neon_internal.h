// Kernels of plain NEON that the other NEON folders build upon.
#pragma once

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

EncodeSpan neon_encode(const Encoder& encoder);
ScaledSpan neon_encode_scaled(const Encoder& encoder);
Fp4Rows neon_fp4(DType source);
MxKernels neon_mx(const MxBlocks& blocks);
std::int64_t neon_amax16(DType dtype, const void* values, std::int64_t tiles, std::uint32_t* amax);
DecodeSpan neon_decode(const Decoder& decoder);
DecodeScaled neon_decode_scaled(const Decoder& decoder);
extern const GemmMethod kNeonF32;
void neon_f32_tile(const MicrokernelJob& job);  // the microkernel of kNeonF32: MR x NR = 8 x 12
void neon_interleave_words(const std::byte* const* rows, int count, std::int64_t words,
                           std::byte* panel);
const GemmMethod* neon_gemm(const GemmJob& job);
const AttentionMethod* neon_attention(const AttentionJob& job);
struct SoftmaxJob;                         // attention.h
bool neon_softmax(const SoftmaxJob& job);  // query blocks of 12, in f32
DotKernel neon_dot_codes(const Format& format);
PackCodes neon_pack_codes(const PackedCodes& codes);
void neon_rank(const RankedTiles& job, std::uint32_t* found);
void neon_fp4_squares(const float* x, const float* weights, std::int64_t n, const float* factors,
                      int count, float* sums);
std::uint32_t neon_row_error(const RowErrorJob& job, RowErrorSums& sums);
Counts neon_count(const Encoder& encoder, const void* values, std::int64_t n, std::uint64_t index);

// The powers of two: null for any other format, and for policies that the portable kernel handles.
EncodeSpan neon_encode_e8m0(const Encoder& encoder);
// The upper byte of an f16: null for any other format, and for stochastic rounding.
EncodeSpan neon_encode_e5m2(const Encoder& encoder);

}  // namespace octavo::cpu
