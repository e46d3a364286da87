// Sums of a tile that is cut along K: one cluster leaves them, the next goes on from there.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"

namespace octavo::cuda {

// Sums that one cluster leaves for the next, in the order of threads.
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

// That they are there, said by a thread that has nothing else to do: a fence waits for stores under
// way. Those who left them have arrived at `left`.
__device__ __forceinline__ void signal_partial_sums(const GemmPlan& plan, int slot,
                                                    SharedAddress left) {
  mbarrier_wait(left, 0);
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(plan.ready + slot), "l"(plan.ticket)
               : "memory");
}

// Until the sums of a slot are there, for a warpgroup.
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
    plan.ready[slot] = 0;  // a graph has the same ticket every time
  }
  named_barrier_sync(barrier, 128);
}

// Those that were waited for, in the place of sums or added to them.
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

// From what the cluster before has left.
template <int kSums>
__device__ __forceinline__ void continue_partial_sums(const GemmPlan& plan, int slot, int thread,
                                                      int barrier, float (&sums)[kSums]) {
  wait_partial_sums(plan, slot, thread, barrier);
  load_partial_sums<false>(plan, slot, thread, sums);
}

}  // namespace octavo::cuda
