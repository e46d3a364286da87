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
void avx512_narrow_bf16(const float* values, std::uint16_t* out, std::int64_t n);
void avx512_widen_bf16(const void* values, float* out, std::int64_t n);
void avx512_activate(ProducerKind, const double* x, const double* gate, float* out, std::int64_t n);
void avx512_encode_any(const Encoder&, const void* values, void* codes, std::int64_t n,
                       std::uint64_t index);
void avx512_decode_any(const Decoder&, const void* codes, void* values, std::int64_t n);
Counts avx512_count(const Encoder&, const void* values, std::int64_t n, std::uint64_t index);
extern const ProductSpans kAvx512Products;
void avx512_subtract_f64(const F64Update& update);
extern const NormSpans kAvx512Norms;
void avx512_rank(const RankedTiles& job, std::uint32_t* found);
void avx512_fp4_squares(const float* x, const float* weights, std::int64_t n, const float* factors,
                        int count, float* sums);
std::uint32_t avx512_row_error(const RowErrorJob& job, RowErrorSums& sums);
std::uint32_t avx512_amax(DType dtype, const void* values, std::int64_t n);
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
