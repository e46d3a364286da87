// Kernels of AVX2 that other folders of x86 build upon.
#pragma once

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

EncodeSpan avx2_encode(const Encoder& encoder);
ScaledSpan avx2_encode_scaled(const Encoder& encoder);
DecodeSpan avx2_decode(const Decoder& decoder);
DecodeScaled avx2_decode_scaled(const Decoder& decoder);
MxKernels avx2_mx(const MxBlocks& blocks);
Fp4Rows avx2_fp4(DType source);
std::int64_t avx2_amax16(DType dtype, const void* values, std::int64_t tiles, std::uint32_t* amax);
void avx2_encode_any(const Encoder&, const void* values, void* codes, std::int64_t n,
                     std::uint64_t index);
void avx2_decode_any(const Decoder&, const void* codes, void* values, std::int64_t n);
Counts avx2_count(const Encoder&, const void* values, std::int64_t n, std::uint64_t index);
void avx2_activate(ProducerKind, const double* x, const double* gate, float* out, std::int64_t n);
extern const ProductSpans kAvx2Products;
extern const NormSpans kAvx2Norms;
void avx2_rank(const RankedTiles& job, std::uint32_t* found);
void avx2_fp4_squares(const float* x, const float* weights, std::int64_t n, const float* factors,
                      int count, float* sums);
void avx2_subtract_f64(const F64Update& update);
std::uint32_t avx2_row_error(const RowErrorJob& job, RowErrorSums& sums);
std::uint32_t avx2_amax(DType dtype, const void* values, std::int64_t n);
inline constexpr int kAvx2Rows = 6, kAvx2Cols = 16;
void avx2_f32_tile(const MicrokernelJob& job);  // MR x NR = 6 x 16
const GemmMethod* avx2_gemm(const GemmJob& job);
const AttentionMethod* avx2_attention(const AttentionJob& job);

}  // namespace octavo::cpu
