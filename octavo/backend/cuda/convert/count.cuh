// Counts of saturated, flushed and NaN elements: per thread, reduced per warp, added to the
// caller's counts by atomics.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/convert/count_edges.h"
#include "octavo/round/encode.h"
#include "octavo/round/policy.h"

namespace octavo::cuda {

struct ThreadCounts {
  unsigned saturated = 0, flushed = 0, nan = 0;
  __device__ void add(const Encoded& encoded) {
    saturated += encoded.saturated;
    flushed += encoded.flushed;
    nan += encoded.nan;
  }
  // Counts a value, given as f32 bits.
  __device__ __forceinline__ void count_value(const CountEdges& edges, std::uint32_t bits) {
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    const bool negative = bits != magnitude, is_nan = magnitude > 0x7F800000u;
    const std::uint32_t from = negative ? edges.saturated_from[1] : edges.saturated_from[0];
    const std::uint32_t below = negative ? edges.flushed_below[1] : edges.flushed_below[0];
    saturated += magnitude >= from && !is_nan;
    flushed += magnitude - 1u < below - 1u;
    nan += is_nan;
  }
  // The same where both signs have the same edges.
  __device__ __forceinline__ void count_magnitude(const CountEdges& edges, std::uint32_t bits) {
    const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
    saturated += magnitude >= edges.saturated_from[0];  // NaN too: subtracted later
    flushed += magnitude - 1u < edges.flushed_below[0] - 1u;
    nan += magnitude > 0x7F800000u;
  }
};

__device__ inline void add_number(std::int64_t* to, unsigned lane_number) {
  const unsigned sum = __reduce_add_sync(0xFFFFFFFFu, lane_number);
  if (threadIdx.x % 32 == 0 && sum != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(sum));
}
// All lanes of a warp must call this.
__device__ inline void add_counts(Counts* counts, const ThreadCounts& lane) {
  add_number(&counts->saturated, lane.saturated);
  add_number(&counts->flushed, lane.flushed);
  add_number(&counts->nan, lane.nan);
}
// All threads of a block must call this, once: one atomic per block, for large grids.
__device__ inline void add_block_counts(Counts* counts, const ThreadCounts& lane) {
  __shared__ unsigned sums[3];
  if (threadIdx.x < 3) sums[threadIdx.x] = 0;
  __syncthreads();
  const unsigned mine[3] = {lane.saturated, lane.flushed, lane.nan};
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const unsigned sum = __reduce_add_sync(0xFFFFFFFFu, mine[i]);
    if (threadIdx.x % 32 == 0 && sum != 0) atomicAdd(&sums[i], sum);
  }
  __syncthreads();
  std::int64_t* const to[3] = {&counts->saturated, &counts->flushed, &counts->nan};
#pragma unroll
  for (int i = 0; i < 3; ++i)
    if (threadIdx.x == i && sums[i] != 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(to[i]),
                static_cast<unsigned long long>(sums[i]));
}

}  // namespace octavo::cuda
