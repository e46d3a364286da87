// Attention in f32. A microkernel is 8 keys or channels by 48 queries, three vectors: 24 of 32
// registers are sums, and a K step is three loads of B and eight broadcasts of A for 24 multiply-
// adds, 11 loads in the 12 cycles that two multiply-adds a cycle take. 48 queries are also what the
// tiles of the backward pass are cut by.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "octavo/backend/cpu/attention/attention.h"
#include "octavo/backend/cpu/isa/avx2/gemm_f32_kernel.h"
#include "octavo/backend/cpu/isa/avx2/soft_cap_kernel.h"
#include "octavo/backend/cpu/isa/avx2/softmax_kernel.h"
#include "octavo/backend/cpu/isa/avx512/attention_decode_steps.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"
#include "octavo/backend/cpu/isa/avx512/lanes_avx512.h"
#include "octavo/backend/cpu/isa/avx512/transpose16.h"

namespace octavo::cpu {
namespace {

// AttentionMethod::transpose_sums for a query block of kQueries.
template <int kQueries>
void transpose_sums(const float* sums, std::int64_t rows, float* to) {
  for (std::int64_t row = 0; row < rows; row += 16)
    for (int query = 0; query < kQueries; query += 16) {
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(sums + (row + i) * kQueries + query);
      transpose(r);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + (query + i) * rows + row, r[i]);
    }
}

constexpr AttentionMethod f32_attention(
    const DecodeKernels* (*decode_kernels)(const GemmOperand&)) {
  constexpr int kVectors = 3, kQueries = kVectors * Avx512Lanes::kLanes;
  constexpr Microkernel kTile{
      .rows = 8, .cols = kQueries, .step = 1, .run = f32_tile<Avx512Lanes, 8, kVectors>};
  return {.name = "f32 FMA",
          .score = kTile,
          .overwrites_scores = true,
          .weigh = kTile,
          .softmax = softmax_lanes<Avx512Lanes, kVectors>,
          .soft_cap = soft_cap_lanes<Avx512Lanes>,
          .rescale = rescale_lanes<Avx512Lanes, kVectors>,
          .transpose_sums = transpose_sums<kQueries>,
          .sums_weight_squares = true,
          .tile_keys = 64,
          .interleave = avx512_interleave,
          .decode_kernels = decode_kernels,
          .decode_steps = &kAvx512DecodeSteps,
          .sums_by_tile = true};
}

}  // namespace
}  // namespace octavo::cpu
