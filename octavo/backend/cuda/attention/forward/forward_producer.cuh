// The shared-memory pipeline of a forward kernel, and its producer: one thread that loads Q, K, V
// and scales of keys by TMA, ahead of the consumers, through the work tiles of its block.
#pragma once

#include "octavo/backend/cuda/attention/forward/forward_kernel_shape.h"
#include "octavo/backend/cuda/attention/forward/forward_schedule.cuh"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/tma.cuh"

namespace octavo::cuda {

// Stages of a ring, and the parity of their mbarriers, which flips every time round it.
template <int kStages>
struct RingState {
  int stage = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <typename Kernel>
struct ForwardPipeline {
  SharedAddress base;  // at a multiple of 1024

  __device__ __forceinline__ SharedAddress q() const { return base; }
  __device__ __forceinline__ SharedAddress k(int stage) const {
    return base + Kernel::kAtK + stage * Kernel::kKBytes;
  }
  __device__ __forceinline__ SharedAddress v(int stage) const {
    return base + Kernel::kAtV + stage * Kernel::kVBytes;
  }
  __device__ __forceinline__ SharedAddress key_scales(int stage) const {
    return base + Kernel::kAtScales + stage * Kernel::kScaleBytes;
  }
  __device__ __forceinline__ SharedAddress row_factors() const { return base + Kernel::kAtFactors; }
  __device__ __forceinline__ SharedAddress barrier(int index) const {
    return base + Kernel::kAtBarriers + 8 * index;
  }
  __device__ __forceinline__ SharedAddress full_q() const { return barrier(0); }
  __device__ __forceinline__ SharedAddress empty_q() const { return barrier(1); }
  __device__ __forceinline__ SharedAddress full_k(int stage) const { return barrier(2 + stage); }
  __device__ __forceinline__ SharedAddress empty_k(int stage) const {
    return barrier(2 + Kernel::kStages + stage);
  }
  __device__ __forceinline__ SharedAddress full_v(int stage) const {
    return barrier(2 + 2 * Kernel::kStages + stage);
  }
  __device__ __forceinline__ SharedAddress empty_v(int stage) const {
    return barrier(2 + 3 * Kernel::kStages + stage);
  }

  // Work tiles that the producer has taken, two at a time.
  static constexpr int kWorkSlots = 2;
  __device__ __forceinline__ SharedAddress full_work(int slot) const {
    return barrier(2 + 4 * Kernel::kStages + slot);
  }
  __device__ __forceinline__ SharedAddress empty_work(int slot) const {
    return barrier(4 + 4 * Kernel::kStages + slot);
  }
  __device__ __forceinline__ SharedAddress work(int slot) const {
    return base + Kernel::kAtWork + static_cast<int>(sizeof(ForwardWork)) * slot;
  }

  // One thread calls it. A warp of the consumers arrives at an empty barrier once.
  __device__ __forceinline__ void init() const {
    constexpr int kWarps = Kernel::kGroups * 4;
    mbarrier_init(full_q(), 1);
    mbarrier_init(empty_q(), kWarps);
    for (int stage = 0; stage < Kernel::kStages; ++stage) {
      mbarrier_init(full_k(stage), 1);
      mbarrier_init(full_v(stage), 1);
      mbarrier_init(empty_k(stage), kWarps);
      mbarrier_init(empty_v(stage), kWarps);
    }
    for (int slot = 0; slot < kWorkSlots; ++slot) {
      mbarrier_init(full_work(slot), 1);
      mbarrier_init(empty_work(slot), kWarps);
    }
    mbarrier_init_fence();
  }
};

// Work tiles as the consumers get them.
template <typename Kernel>
class WorkReader {
 public:
  // False: no more.
  __device__ __forceinline__ bool next(const ForwardPipeline<Kernel>& pipeline, int lane,
                                       ForwardWork& work) {
    mbarrier_wait(pipeline.full_work(ring_.stage), ring_.phase);
    const uint4 slot = load_shared_vector(pipeline.work(ring_.stage));
    __syncwarp();
    if (lane == 0) mbarrier_arrive(pipeline.empty_work(ring_.stage));
    ring_.next();
    work = {.batch = static_cast<int>(slot.x),
            .head = static_cast<int>(slot.y),
            .first = static_cast<int>(slot.z),
            .end = static_cast<int>(slot.w)};
    return work.batch >= 0;
  }

 private:
  RingState<ForwardPipeline<Kernel>::kWorkSlots> ring_;
};

template <typename Kernel>
class ForwardProducer {
 public:
  __device__ __forceinline__ ForwardProducer(const ForwardPlan& plan,
                                             const ForwardPipeline<Kernel>& pipeline)
      : plan_(plan), pipeline_(pipeline) {}

  __device__ __forceinline__ void run() {
    unsigned q_phase = 1;
    WorkWalk<Kernel> walk;
    RingState<ForwardPipeline<Kernel>::kWorkSlots> slots;
    for (bool more = true; more;) {
      ForwardWork work;
      more = walk.next(plan_, work);
      if (!more) work.batch = -1;
      mbarrier_wait(pipeline_.empty_work(slots.stage), slots.phase ^ 1);
      store_shared_vector(
          pipeline_.work(slots.stage),
          make_uint4(static_cast<unsigned>(work.batch), static_cast<unsigned>(work.head),
                     static_cast<unsigned>(work.first), static_cast<unsigned>(work.end)));
      mbarrier_arrive(pipeline_.full_work(slots.stage));
      slots.next();
      if (!more) return;
      const KeyTiles tiles = key_tiles<Kernel>(plan_.job, work);
      if (tiles.first >= tiles.last) continue;
      kv_head_ = work.head / plan_.heads_per_kv;
      batch_ = work.batch;
      mbarrier_wait(pipeline_.empty_q(), q_phase);
      q_phase ^= 1;
      load_q(work);
      load_k(tiles.first);
      for (int tile = tiles.first + 1; tile < tiles.last; ++tile) {
        load_k(tile);
        load_v(tile - 1);
      }
      load_v(tiles.last - 1);
    }
  }

 private:
  static constexpr int kLineElements = Kernel::kLine / Kernel::kScoreBytes;

  __device__ __forceinline__ void load_q(const ForwardWork& work) const {
    mbarrier_arrive_expect_tx(pipeline_.full_q(), Kernel::kQBytes);
#pragma unroll
    for (int panel = 0; panel < Kernel::kPanels; ++panel)
      tma_load_4d(pipeline_.q() + panel * Kernel::kQPanel, plan_.q, panel * kLineElements,
                  work.first, work.head, work.batch, pipeline_.full_q());
  }
  __device__ __forceinline__ void load_k(int tile) {
    const int stage = k_.stage;
    mbarrier_wait(pipeline_.empty_k(stage), k_.phase ^ 1);
    mbarrier_arrive_expect_tx(pipeline_.full_k(stage), Kernel::kKBytes + Kernel::kScaleBytes);
#pragma unroll
    for (int panel = 0; panel < Kernel::kPanels; ++panel)
      tma_load_4d(pipeline_.k(stage) + panel * Kernel::kKPanel, plan_.k, panel * kLineElements,
                  tile * Kernel::kKeys, kv_head_, batch_, pipeline_.full_k(stage));
    if constexpr (Kernel::kKeyScales) {
      const std::int64_t head = batch_ * plan_.job.kv_heads + kv_head_;
      const std::int64_t at = head * plan_.padded_keys + tile * Kernel::kKeys;
      tma_load_1d(pipeline_.key_scales(stage),
                  static_cast<const unsigned char*>(plan_.key_scales) +
                      at * (Kernel::kScaleBytes / Kernel::kKeys),
                  Kernel::kScaleBytes, pipeline_.full_k(stage));
    }
    k_.next();
  }
  __device__ __forceinline__ void load_v(int tile) {
    const int stage = v_.stage;
    mbarrier_wait(pipeline_.empty_v(stage), v_.phase ^ 1);
    mbarrier_arrive_expect_tx(pipeline_.full_v(stage), Kernel::kVLoaded);
    if constexpr (Kernel::kIsFast) {
      tma_load_4d(pipeline_.v(stage), plan_.v, tile * Kernel::kKeys, 0, kv_head_, batch_,
                  pipeline_.full_v(stage));
    } else {
#pragma unroll
      for (int panel = 0; panel < Kernel::kDepth / 64; ++panel)
        tma_load_4d(pipeline_.v(stage) + panel * Kernel::kVPanel, plan_.v, panel * 64,
                    tile * Kernel::kKeys, kv_head_, batch_, pipeline_.full_v(stage));
    }
    v_.next();
  }

  const ForwardPlan& plan_;
  const ForwardPipeline<Kernel>& pipeline_;
  RingState<Kernel::kStages> k_, v_;
  int kv_head_ = 0, batch_ = 0;
};

}  // namespace octavo::cuda
