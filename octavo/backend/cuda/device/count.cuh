// What a kernel met, added up: lanes to warps by shuffles, warps to the caller's counts by atomics.
#pragma once

#include <cstdint>

#include "octavo/round/encode.h"
#include "octavo/round/policy.h"

namespace octavo::cuda {

struct LaneCounts {
  unsigned saturated = 0, flushed = 0, nan = 0;
  __device__ void add(const Encoded& encoded) {
    saturated += encoded.saturated;
    flushed += encoded.flushed;
    nan += encoded.nan;
  }
};

__device__ inline void add_number(std::int64_t* to, unsigned lane_number) {
  const unsigned sum = __reduce_add_sync(0xFFFFFFFFu, lane_number);
  if (threadIdx.x % 32 == 0 && sum != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(sum));
}
// All lanes of a warp call this.
__device__ inline void add_counts(Counts* counts, const LaneCounts& lane) {
  add_number(&counts->saturated, lane.saturated);
  add_number(&counts->flushed, lane.flushed);
  add_number(&counts->nan, lane.nan);
}

}  // namespace octavo::cuda
