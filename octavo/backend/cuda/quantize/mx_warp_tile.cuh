// Layout of 32 rows of a matrix in a warp, for MX rowwise and columnwise: eight lanes across, each
// with eight rows of one 16-byte vector, four times below each other. Amaxes of blocks of 32.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/tensor/quantized_view.h"

namespace octavo::cuda {

inline constexpr int kLaneRows = 8;
inline constexpr int kAcross = 8;  // lanes across
template <DType kSource>
inline constexpr int kLaneCols = kSource == DType::f32 ? 4 : 8;  // sixteen bytes

// Amaxes of a lane's rows, over the whole block of 32 columns.
template <DType kSource>
__device__ __forceinline__ void row_amaxes(const uint4 (&x)[kLaneRows],
                                           std::uint32_t (&amax)[kLaneRows]) {
  if constexpr (kSource != DType::f32) {
#pragma unroll
    for (int i = 0; i < kLaneRows; i += 2) {
      const unsigned two[2] = {halves_amax(x[i]), halves_amax(x[i + 1])};
      // Row i in the low half, row i + 1 in the high one: one shuffle serves both.
      unsigned both = __vimax3_u16x2(__byte_perm(two[0], two[1], 0x5410),
                                     __byte_perm(two[0], two[1], 0x7632), 0u);
#pragma unroll
      for (int step = 1; step < kMxBlock / kLaneCols<kSource>; step *= 2)
        both = __vimax3_u16x2(both, __shfl_xor_sync(0xFFFFFFFFu, both, step), 0u);
      amax[i] = widened_magnitude<kSource>(both << 16);
      amax[i + 1] = widened_magnitude<kSource>(both & 0xFFFF0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      amax[i] = 0;
#pragma unroll
      for (int c = 0; c < kLaneCols<kSource>; ++c)
        amax[i] = max(amax[i], f32_bits<kSource>(x[i], c) & 0x7FFFFFFFu);
#pragma unroll
      for (int step = 1; step < kMxBlock / kLaneCols<kSource>; step *= 2)
        amax[i] = max(amax[i], __shfl_xor_sync(0xFFFFFFFFu, amax[i], step));
    }
  }
}

// Amaxes of a lane's columns, over all 32 rows.
template <DType kSource>
__device__ __forceinline__ void column_amaxes(const uint4 (&x)[kLaneRows],
                                              std::uint32_t (&amax)[kLaneCols<kSource>]) {
  if constexpr (kSource != DType::f32) {
    constexpr unsigned kMask = 0x7FFF7FFFu;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      unsigned two = 0;
#pragma unroll
      for (int i = 0; i < kLaneRows; i += 2)
        two = __vimax3_u16x2(two, word(x[i], k) & kMask, word(x[i + 1], k) & kMask);
#pragma unroll
      for (int step = kAcross; step < 32; step *= 2)
        two = __vimax3_u16x2(two, __shfl_xor_sync(0xFFFFFFFFu, two, step), 0u);
      amax[2 * k] = widened_magnitude<kSource>(two << 16);
      amax[2 * k + 1] = widened_magnitude<kSource>(two & 0xFFFF0000u);
    }
  } else {
#pragma unroll
    for (int c = 0; c < kLaneCols<kSource>; ++c) {
      amax[c] = 0;
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i)
        amax[c] = max(amax[c], f32_bits<kSource>(x[i], c) & 0x7FFFFFFFu);
#pragma unroll
      for (int step = kAcross; step < 32; step *= 2)
        amax[c] = max(amax[c], __shfl_xor_sync(0xFFFFFFFFu, amax[c], step));
    }
  }
}

}  // namespace octavo::cuda
