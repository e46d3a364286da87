// Stream-K partial sums: of a tile that is split along K, one cluster stores its sums, and the next
// cluster loads them and continues.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"

namespace octavo::cuda {

// Stores partial sums for the next cluster, in thread order.
template <int kSums>
__device__ __forceinline__ void store_partial_sums(const GemmPlan& plan, int slot, int thread,
                                                   const float (&sums)[kSums]) {
  float4* to =
      reinterpret_cast<float4*>(plan.partial) + static_cast<std::int64_t>(slot) * 32 * kSums;
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i) {
    const float* four = &sums[4 * i];
    __stcg(to + i * 128 + thread, make_float4(four[0], four[1], four[2], four[3]));
  }
}

// Sets the flag of a slot, with release semantics. Done by a producer thread, because the fence
// waits for stores in flight. The threads that stored the sums have arrived at the mbarrier `left`.
__device__ __forceinline__ void signal_partial_sums(const GemmPlan& plan, int slot,
                                                    SharedAddress left) {
  mbarrier_wait(left, 0);
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(plan.ready + slot), "l"(plan.ticket)
               : "memory");
}

// A warpgroup waits until the partial sums of a slot are there.
__device__ __forceinline__ void wait_partial_sums(const GemmPlan& plan, int slot, int thread,
                                                  int barrier) {
  if (thread == 0) {
    unsigned long long seen;
    do {
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];"
                   : "=l"(seen)
                   : "l"(plan.ready + slot)
                   : "memory");
    } while (seen != plan.ticket);
    plan.ready[slot] = 0;  // a graph replay has the same ticket
  }
  named_barrier_sync(barrier, 128);
}

// Loads partial sums that were waited for, into `sums` or added to them.
template <bool kAdds, int kSums>
__device__ __forceinline__ void load_partial_sums(const GemmPlan& plan, int slot, int thread,
                                                  float (&sums)[kSums]) {
  const float4* from =
      reinterpret_cast<const float4*>(plan.partial) + static_cast<std::int64_t>(slot) * 32 * kSums;
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i) {
    const float4 four = __ldcg(from + i * 128 + thread);
    float* to = &sums[4 * i];
    to[0] = kAdds ? to[0] + four.x : four.x;
    to[1] = kAdds ? to[1] + four.y : four.y;
    to[2] = kAdds ? to[2] + four.z : four.z;
    to[3] = kAdds ? to[3] + four.w : four.w;
  }
}

// Continues from the partial sums of the cluster before.
template <int kSums>
__device__ __forceinline__ void continue_partial_sums(const GemmPlan& plan, int slot, int thread,
                                                      int barrier, float (&sums)[kSums]) {
  wait_partial_sums(plan, slot, thread, barrier);
  load_partial_sums<false>(plan, slot, thread, sums);
}

}  // namespace octavo::cuda
