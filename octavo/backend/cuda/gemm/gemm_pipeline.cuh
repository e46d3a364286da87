// The ring of stages that a product's operands pass through in shared memory: what a kernel is made
// of, where its stages are, and what stands in them.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_epilogue.cuh"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda {

// With every stage: what it is the beginning of, so that only one thread works out the schedule.
struct alignas(16) TileInfo {
  int row, col;        // of the plan, where the unit begins
  std::uint32_t rest;  // blocks, and in the two highest bits whether sums go on and are unfinished
  int group;

  static constexpr std::uint32_t kContinues = 1u << 31, kIsPartial = 1u << 30;
  [[nodiscard]] __device__ int blocks() const {
    return static_cast<int>(rest & ~(kContinues | kIsPartial));
  }
};

template <Mma kMmaIs, GemmShape kShape, ScaleKind kScalesAre>
struct GemmKernel {
  static constexpr Mma kMma = kMmaIs;
  static constexpr ScaleKind kScales = kScalesAre;
  static constexpr int kRowGroups = kShape.row_groups, kGroups = kShape.warpgroups(),
                       kRows = kShape.rows(), kCols = kShape.cols, kClusterSize = kShape.blocks;
  // Waves of a warpgroup, and the row groups from one to the next: all warpgroups' of a wave.
  static constexpr int kRowPasses = kShape.row_passes, kPassGroups = kRowGroups / kRowPasses;
  static constexpr bool kStreamK = kShape.uses_stream_k();
  static constexpr bool kMulticastsRows = kShape.multicasts_rows;
  static constexpr int kThreads = (kGroups + 1) * 128;
  static constexpr int kGroupCols = kCols / kShape.col_groups, kSums = kGroupCols / 2;
  // Whether sums stay in the tensor cores from the first block of K to the last.
  static constexpr bool kNoPromotion = !is_fp8(kMma) && kScales == ScaleKind::at_end;
  static_assert(!kNoPromotion || kRowPasses == 1);
  // Runs of products that a warpgroup has under way: two where registers allow it, so that one can
  // be added up while the tensor cores work at the other.
  static constexpr int kRuns = kSums * kRowPasses <= 32 && !kNoPromotion ? 2 : 1;
  static constexpr int kKElements = is_fp8(kMma) ? kRowBytes : kRowBytes / 2;

  static constexpr int kRowTile = kRows * kRowBytes, kColTile = kCols * kRowBytes;
  static constexpr int kStageBytes = kRowTile + kColTile;
  // Of a stage: scales of rows and of columns, which are copied from a multiple of four on where
  // groups begin at any row; and the one that all rows or all columns of a warpgroup share, if
  // there is one: as many as there are warpgroups side by side.
  static constexpr int kColScalesAt = (kRows + 4) * 4,
                       kBroadcastAt = kColScalesAt + (kCols + 4) * 4,
                       kScaleBytes = kBroadcastAt + 16;
  static constexpr int kBroadcastScales = kScales == ScaleKind::by_row      ? kShape.col_groups
                                          : kScales == ScaleKind::by_column ? kRowGroups
                                                                            : 0;
  static_assert(kBroadcastScales <= 4);
  // Beside the ring: where every warpgroup lays out the result of a wave; barriers; and room to
  // begin at a multiple of 1024.
  static constexpr int kStaged = kGroups * kRowPasses * staged_bytes(kGroupCols);
  static constexpr int kBesides = kStaged + 512 + 1024;
  static constexpr int kStageWithScalesBytes =
      kStageBytes + kScaleBytes + static_cast<int>(sizeof(TileInfo));
  static constexpr int kStages = (227 * 1024 - kBesides) / kStageWithScalesBytes;
  static_assert(kStages >= 3);
  static constexpr int kSharedBytes = kStages * kStageWithScalesBytes + kBesides;

  // Registers: those of a block are 64 K, in steps of 8 a thread.
  static constexpr int kConsumerRegisters = kGroups == 3 ? 152 : 224, kProducerRegisters = 56;
  static constexpr bool kUsesSetmaxnreg = kGroups == 3 || (kGroups > 1 && kSums >= 64);

  // Where a block's tile of a unit begins.
  __device__ static __forceinline__ int first_row(const TileInfo& tile, int rank) {
    return kMulticastsRows ? tile.row : tile.row + rank * kRows;
  }
  __device__ static __forceinline__ int first_col(const TileInfo& tile, int rank) {
    return kMulticastsRows ? tile.col + rank * kCols : tile.col;
  }
  static constexpr int kUnitRows = kShape.unit_rows(), kUnitCols = kShape.unit_cols();
};

// A stage of the ring, and whether it is an even or an odd time round.
template <typename Kernel>
struct PipelineState {
  int stage = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == Kernel::kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <typename Kernel>
struct GemmPipeline {
  SharedAddress tiles, scales, full, empty, handed_over;
  TileInfo* tile_infos;

  __device__ __forceinline__ SharedAddress rows(int stage) const {
    return tiles + stage * Kernel::kStageBytes;
  }
  __device__ __forceinline__ SharedAddress cols(int stage) const {
    return rows(stage) + Kernel::kRowTile;
  }
  __device__ __forceinline__ SharedAddress full_barrier(int stage) const {
    return full + 8 * stage;
  }
  __device__ __forceinline__ SharedAddress empty_barrier(int stage) const {
    return empty + 8 * stage;
  }
  // Where the threads of a warpgroup arrive once they have left sums for the next cluster.
  __device__ __forceinline__ SharedAddress handed_over_barrier(int group) const {
    return handed_over + 8 * group;
  }
  __device__ __forceinline__ SharedAddress row_scales(int stage) const {
    return scales + stage * Kernel::kScaleBytes;
  }
  __device__ __forceinline__ SharedAddress col_scales(int stage) const {
    return row_scales(stage) + Kernel::kColScalesAt;
  }
  __device__ __forceinline__ SharedAddress broadcast_scale(int stage, int which) const {
    return row_scales(stage) + Kernel::kBroadcastAt + which * static_cast<int>(sizeof(float));
  }
};

// One thread. So many arrive at a stage that is full, the copy engine among them.
template <typename Kernel>
__device__ __forceinline__ void init_pipeline(const GemmPipeline<Kernel>& pipeline, int producers) {
  for (int stage = 0; stage < Kernel::kStages; ++stage) {
    mbarrier_init(pipeline.full_barrier(stage), producers);
    mbarrier_init(pipeline.empty_barrier(stage), Kernel::kGroups * 4 * Kernel::kClusterSize);
  }
  for (int of = 0; of < Kernel::kGroups; ++of) mbarrier_init(pipeline.handed_over_barrier(of), 128);
  mbarrier_init_fence();
}

template <typename Kernel>
__device__ __forceinline__ void consumer_release(const GemmPipeline<Kernel>& pipeline, int stage,
                                                 int lane) {
  if constexpr (Kernel::kClusterSize == 1) {
    if (lane == 0) mbarrier_arrive(pipeline.empty_barrier(stage));
  } else {
    if (lane < Kernel::kClusterSize) mbarrier_arrive_cluster(pipeline.empty_barrier(stage), lane);
  }
}

}  // namespace octavo::cuda
