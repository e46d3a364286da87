// The tensor-core backward kernel (wgmma, TMA, warp-specialised). A block keeps 128 keys and values
// in shared memory and goes through tiles of queries and dO, which the producer warp loads; each of
// two consumer warpgroups has 64 of the keys:
//   S^T = K Q^T,  P = 2^(S - lse),  dP^T = V dO^T,  dS = P (dP - delta),
//   dV += P^T dO and dK += dS^T Q from registers,  dQ = dS K from shared memory, through which the
//   warpgroups exchange dS.
// Products of the next tile are issued while those of this one run. A second warp adds dQ to global
// memory, in the order that backward_plan.h describes.
#pragma once

#include "octavo/backend/cuda/attention/backward/backward_consumer.cuh"
#include "octavo/backend/cuda/attention/backward/backward_producer.cuh"
#include "octavo/backend/cuda/hopper/setmaxnreg.cuh"

namespace octavo::cuda {

template <int kDepth, bool kCapped, bool kDrops>
__global__ void __launch_bounds__(BackwardShape<kDepth>::kThreads, 1)
    attention_backward_kernel(const __grid_constant__ BackwardPlan plan) {
  using Shape = BackwardShape<kDepth>;
  extern __shared__ __align__(1024) unsigned char memory[];
  if (plan.declined != nullptr && *plan.declined != 0) return;
  const SharedAddress base = shared_address(memory);
  auto& ticket = *reinterpret_cast<unsigned*>(memory + Shape::kTicket);
  if (threadIdx.x == 0) {
    ticket = atomicAdd(plan.ticket, 1u);
    const auto init = [&](unsigned which, unsigned arrivals) {
      mbarrier_init(base + Shape::kBarriers + 8 * which, arrivals);
    };
    init(kKeysFull, 1);
    for (unsigned i = 0; i < 2; ++i) {
      init(kQFull + i, 1);
      init(kOFull + i, 1);
      init(kQEmpty + i, 4 * kBackwardWarpgroups);
      init(kOEmpty + i, 4 * kBackwardWarpgroups);
      init(kSFull + i, 4 * kBackwardWarpgroups);
    }
    for (unsigned i = 0; i < 2 * kBackwardWarpgroups; ++i) {
      init(kPartFull + i, 4);
      init(kPartEmpty + i, 1);
    }
    mbarrier_init_fence();
  }
  __syncthreads();
  const BackwardWork work = BackwardWork::of(plan, ticket, Shape::kQueries);
  const int steps = work.tiles() * (plan.heads / plan.kv_heads);
  if (threadIdx.x < 128) {
    setmaxnreg_dec<24>();
    if (steps == 0) return;
    if (threadIdx.x == 0) backward_produce<Shape>(plan, work, steps, base);
    if (threadIdx.x % 32 == 0 && threadIdx.x / 32 - 1 < 2)
      backward_add_d_q<Shape>(plan, work, steps, threadIdx.x / 32 - 1, base);
  } else {
    setmaxnreg_inc<240>();
    BackwardConsumer<Shape, kCapped, kDrops>(plan, work, base).run(steps);
  }
}

}  // namespace octavo::cuda
