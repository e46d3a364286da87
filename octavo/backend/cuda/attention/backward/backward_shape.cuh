// Shared memory of the tensor-core backward kernel, its mbarriers, and the work of a block.
#pragma once

#include "octavo/backend/cuda/attention/backward/backward_plan.h"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda {

template <int kDepth>
struct BackwardShape {
  static constexpr int kD = kDepth, kBoxes = kDepth / 64, kQueries = backward_queries(kDepth),
                       kStages = 2, kSums = kQueries / 2,
                       kThreads = 128 * (1 + kBackwardWarpgroups);
  // There are no registers for packed weights beside the sums of dP.
  static constexpr bool kIsTight = kDepth == 64;
  static constexpr unsigned kKeyBytes = kBackwardKeys * kDepth * 2,
                            kQueryBytes = kQueries * kDepth * 2, kQueryBox = kQueries * kRowBytes,
                            kKeyBox = kBackwardKeys * kRowBytes,
                            kGradientBox = kQueries * kRowBytes,  // dS: queries by 64 keys
      kPartBytes = kBackwardPart * 4, kRowNumbers = kQueries * 4;
  // Places in shared memory, from a multiple of 1024.
  static constexpr unsigned kK = 0, kV = kK + kKeyBytes, kQ = kV + kKeyBytes,
                            kO = kQ + kStages * kQueryBytes, kS = kO + kStages * kQueryBytes,
                            kPart = kS + 2 * kBackwardWarpgroups * kGradientBox,
                            kLse = kPart + 2 * kBackwardWarpgroups * kPartBytes,
                            kDelta = kLse + kStages * kRowNumbers,
                            kBarriers = kDelta + kStages * kRowNumbers, kTicket = kBarriers + 160,
                            kSharedBytes = kTicket + 16;
};

// mbarriers, eight bytes each from kBarriers on.
enum BackwardBarrier : unsigned {
  kKeysFull = 0,
  kQFull = 1,
  kQEmpty = 3,
  kOFull = 5,
  kOEmpty = 7,
  kSFull = 9,
  kPartFull = 11,   // of two buffers, two warpgroups each
  kPartEmpty = 15,  // the same
};

// What a block does: its keys, and the tiles of queries of each head that reads them.
struct BackwardWork {
  int batch, kv_head, block, first_tile, last_tile;  // tiles [first, last), from the last on
  BackwardBand band;

  __device__ __forceinline__ static BackwardWork of(const BackwardPlan& plan, unsigned ticket,
                                                    int queries) {
    const unsigned each = static_cast<unsigned>(plan.together * plan.key_blocks);
    const unsigned chunk = ticket / each, rest = ticket % each;
    const unsigned all = static_cast<unsigned>(plan.batches * plan.kv_heads),
                   first = chunk * static_cast<unsigned>(plan.together),
                   here = min(static_cast<unsigned>(plan.together), all - first);
    const unsigned head = first + rest % here;
    BackwardWork work{};
    work.batch = static_cast<int>(head) / plan.kv_heads;
    work.kv_head = static_cast<int>(head) % plan.kv_heads;
    work.block = static_cast<int>(rest / here);
    work.band = plan.band(work.batch);
    const BackwardBand::Span rows =
        work.band.rows_of(work.block * kBackwardKeys, (work.block + 1) * kBackwardKeys);
    if (rows.begin < rows.end) {
      work.first_tile = rows.begin / queries;
      work.last_tile = (rows.end + queries - 1) / queries;
    }
    return work;
  }
  [[nodiscard]] __device__ __forceinline__ int tiles() const { return last_tile - first_tile; }
};

// Goes through the tiles of a block's work: heads of the group, and tiles from the last on.
struct BackwardStep {
  int head, tile;
  __device__ __forceinline__ static BackwardStep of(const BackwardPlan& plan,
                                                    const BackwardWork& work) {
    return {work.kv_head * (plan.heads / plan.kv_heads), work.last_tile - 1};
  }
  __device__ __forceinline__ void next(const BackwardWork& work) {
    if (--tile >= work.first_tile) return;
    tile = work.last_tile - 1;
    ++head;
  }
};

}  // namespace octavo::cuda
