// The warps of the producer warpgroup of the backward kernel: one loads tiles, two add dQ to global
// memory.
#pragma once

#include "octavo/backend/cuda/attention/backward/backward_shape.cuh"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/tma.cuh"

namespace octavo::cuda {

template <typename Shape>
__device__ __forceinline__ void backward_produce(const BackwardPlan& plan, const BackwardWork& work,
                                                 int steps, SharedAddress base) {
  const auto barrier = [&](unsigned which) { return base + Shape::kBarriers + 8 * which; };
  mbarrier_arrive_expect_tx(barrier(kKeysFull), 2 * Shape::kKeyBytes);
#pragma unroll
  for (int box = 0; box < Shape::kBoxes; ++box) {
    tma_load_4d(base + Shape::kK + box * Shape::kKeyBox, plan.k, box * 64,
                work.block * kBackwardKeys, work.kv_head, work.batch, barrier(kKeysFull));
    tma_load_4d(base + Shape::kV + box * Shape::kKeyBox, plan.v, box * 64,
                work.block * kBackwardKeys, work.kv_head, work.batch, barrier(kKeysFull));
  }
  BackwardStep step = BackwardStep::of(plan, work);
  const std::int64_t padded = std::int64_t{plan.tiles} * Shape::kQueries;
  for (int t = 0; t < steps; ++t, step.next(work)) {
    const unsigned stage = t % 2, parity = t / 2 % 2;
    const std::int64_t row = (std::int64_t{work.batch} * plan.heads + step.head) * padded +
                             std::int64_t{step.tile} * Shape::kQueries;
    if (t >= 2) mbarrier_wait(barrier(kQEmpty + stage), parity ^ 1u);
    mbarrier_arrive_expect_tx(barrier(kQFull + stage), Shape::kQueryBytes + Shape::kRowNumbers);
#pragma unroll
    for (int box = 0; box < Shape::kBoxes; ++box)
      tma_load_4d(base + Shape::kQ + stage * Shape::kQueryBytes + box * Shape::kQueryBox, plan.q,
                  box * 64, step.tile * Shape::kQueries, step.head, work.batch,
                  barrier(kQFull + stage));
    tma_load_1d(base + Shape::kLse + stage * Shape::kRowNumbers, plan.minus_lse + row,
                Shape::kRowNumbers, barrier(kQFull + stage));
    if (t >= 2) mbarrier_wait(barrier(kOEmpty + stage), parity ^ 1u);
    mbarrier_arrive_expect_tx(barrier(kOFull + stage), Shape::kQueryBytes + Shape::kRowNumbers);
#pragma unroll
    for (int box = 0; box < Shape::kBoxes; ++box)
      tma_load_4d(base + Shape::kO + stage * Shape::kQueryBytes + box * Shape::kQueryBox,
                  plan.d_out, box * 64, step.tile * Shape::kQueries, step.head, work.batch,
                  barrier(kOFull + stage));
    tma_load_1d(base + Shape::kDelta + stage * Shape::kRowNumbers, plan.delta + row,
                Shape::kRowNumbers, barrier(kOFull + stage));
  }
}

// Adds parts of dQ to global memory, each tile's in the order of key blocks; the first one is
// stored, so that nothing need be cleared. Two warps take every second tile each: to wait for a
// turn and for the memory takes about as long as a tile.
template <typename Shape>
__device__ __forceinline__ void backward_add_d_q(const BackwardPlan& plan, const BackwardWork& work,
                                                 int steps, unsigned mine, SharedAddress base) {
  const auto barrier = [&](unsigned which) { return base + Shape::kBarriers + 8 * which; };
  BackwardStep step = BackwardStep::of(plan, work);
  for (int t = 0; t < steps; ++t, step.next(work)) {
    if (static_cast<unsigned>(t) % 2 != mine) continue;
    const std::int64_t tile =
        (std::int64_t{work.batch} * plan.heads + step.head) * plan.tiles + step.tile;
    const BackwardBand::Span keys =
        work.band.keys_of(step.tile * Shape::kQueries, (step.tile + 1) * Shape::kQueries);
    const auto turn = static_cast<unsigned>(work.block - keys.begin / kBackwardKeys);
    unsigned* const counter = plan.turns + tile;
    if (turn != 0) {
      unsigned now;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
      } while (now != turn);
      asm volatile("fence.proxy.async;" ::: "memory");
    }
#pragma unroll
    for (unsigned part = 0; part < kBackwardWarpgroups; ++part) {
      const unsigned buffer = mine * kBackwardWarpgroups + part;
      mbarrier_wait(barrier(kPartFull + buffer), static_cast<unsigned>(t) / 2 % 2);
      float* const to = plan.d_q_sums + (tile * kBackwardWarpgroups + part) * kBackwardPart;
      const SharedAddress from = base + Shape::kPart + buffer * Shape::kPartBytes;
      if (turn == 0)
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                     "r"(from), "r"(Shape::kPartBytes)
                     : "memory");
      else
        asm volatile(
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
            "r"(from), "r"(Shape::kPartBytes)
            : "memory");
      tma_store_commit();
    }
    tma_store_wait_read<0>();
    mbarrier_arrive(barrier(kPartEmpty + mine * kBackwardWarpgroups));
    mbarrier_arrive(barrier(kPartEmpty + mine * kBackwardWarpgroups + 1));
    tma_store_wait();
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(counter), "r"(turn + 1) : "memory");
  }
}

}  // namespace octavo::cuda
