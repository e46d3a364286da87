// Functions shared among the portable files.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu::portable {

// Elements converted at a time where a step needs a buffer: small enough to stay in L1.
inline constexpr std::int64_t kPiece = 1024;

void encode_span(const Encoder&, const void* values, void* codes, std::int64_t n,
                 std::uint64_t index);
Counts count_span(const Encoder&, const void* values, std::int64_t n, std::uint64_t index);
std::uint32_t row_error(const RowErrorJob&, RowErrorSums&);
void rank_tiles(const RankedTiles&, std::uint32_t* found);
void fp4_squares(const float* x, std::int64_t n, const float* factors, int count, float* sums);
void decode_span(const Decoder&, const void* codes, void* values, std::int64_t n);
void gemm_tile(const MicrokernelJob&);
inline constexpr Microkernel kTile{.rows = 4, .cols = 8, .step = 1, .run = gemm_tile};
const GemmMethod* gemm_method(const GemmJob&);
const AttentionMethod* attention_method(const AttentionJob&);

// Values of any dtype to f32 (f64 sources are rounded) or to f64 (exact).
void widen(const void* values, DType source, float* wide, std::int64_t n);
void widen(const void* values, DType source, double* wide, std::int64_t n);

// Rounds f64 values to f32 and back, in place.
void round_to_f32(double* values, std::int64_t n);

}  // namespace octavo::cpu::portable
