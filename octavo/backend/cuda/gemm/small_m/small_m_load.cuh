// Loads of weights and their scales for the small M kernel (small_m.cuh).
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/small_m/small_m_plan.h"

namespace octavo::cuda {

// Groups of 16 codes that a lane has of a chunk: four lanes cover 64 of K at a time.
inline constexpr int kSmallMSixteens = kSmallMChunk / 64;

// A streaming load: does not evict from L1 what is read again.
__device__ __forceinline__ void load_once(const unsigned char* from, uint2& to) {
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(to.x), "=r"(to.y)
               : "l"(from));
}
__device__ __forceinline__ void load_once(const unsigned char* from, uint4& to) {
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
               : "l"(from));
}

// A lane's part of a chunk: of two rows of weights, four times 16 codes, and scales.
template <typename Codes, typename Scales>
struct SmallMChunk {
  typename Codes::Sixteen codes[2][kSmallMSixteens];
  Scales scales[2];
};

// Addresses of a lane's codes and scales of a chunk, for two rows.
template <typename Codes, typename Scales>
struct SmallMWeights {
  const unsigned char *codes[2], *scales[2];

  __device__ __forceinline__ void advance(const SmallMPlan& plan, int chunks) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      codes[r] += chunks * (kSmallMChunk / 16 * static_cast<int>(sizeof(typename Codes::Sixteen)));
      scales[r] += chunks * Scales::chunk_bytes(plan);
      // Keeps the pointer in registers: the compiler would recompute it at every load.
      asm volatile("" : "+l"(codes[r]));
    }
  }
};

// `depth` is what is left of K from the chunk on. kWhole: K is a multiple of the chunk. Otherwise
// elements beyond the end, which is at a multiple of 16, are zero.
template <bool kWhole, typename Sixteen>
__device__ __forceinline__ void load_sixteen(const unsigned char* chunk, int j, int t, int depth,
                                             Sixteen& to) {
  if (kWhole || j * 64 + t * 16 < depth)
    load_once(chunk + j * 4 * sizeof(Sixteen), to);
  else
    to = Sixteen{};
}

// Loads all of a chunk; or, where there is no double buffering, only the scales that its first
// codes need.
template <bool kWhole, bool kAll, typename Codes, typename Scales>
__device__ __forceinline__ void load_chunk(const SmallMPlan& plan,
                                           const SmallMWeights<Codes, Scales>& rows, int t,
                                           int depth, SmallMChunk<Codes, Scales>& piece) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if constexpr (kAll) {
#pragma unroll
      for (int j = 0; j < kSmallMSixteens; ++j)
        load_sixteen<kWhole>(rows.codes[r], j, t, depth, piece.codes[r][j]);
    }
    if constexpr (Scales::kRun == 0) {
      piece.scales[r].template load<kWhole>(rows.scales[r], t, depth);
    } else if constexpr (kAll) {
#pragma unroll
      for (int i = 0; i < kSmallMChunk / Scales::kRun; ++i)
        piece.scales[r].template load_run<kWhole>(plan, rows.scales[r], i, depth);
    }
  }
}

}  // namespace octavo::cuda
