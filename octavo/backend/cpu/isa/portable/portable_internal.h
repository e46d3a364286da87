// Functions shared among the portable files.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu::portable {

void encode_span(const Encoder&, const void* values, void* codes, std::int64_t n,
                 std::uint64_t index);
Counts count_span(const Encoder&, const void* values, std::int64_t n, std::uint64_t index);
std::uint32_t row_error(const RowErrorJob&, RowErrorSums&);
void rank_tiles(const RankedTiles&, std::uint32_t* found);
void fp4_squares(const float* x, const float* weights, std::int64_t n, const float* factors,
                 int count, float* sums);
void decode_span(const Decoder&, const void* codes, void* values, std::int64_t n);
void gemm_tile(const MicrokernelJob&);
inline constexpr Microkernel kTile{.rows = 4, .cols = 8, .step = 1, .run = gemm_tile};
const GemmMethod* gemm_method(const GemmJob&);
const AttentionMethod* attention_method(const AttentionJob&);

}  // namespace octavo::cpu::portable
