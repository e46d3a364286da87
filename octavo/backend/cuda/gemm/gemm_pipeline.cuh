// The shared-memory pipeline of a GEMM kernel: kernel configuration, layout of the ring of stages,
// full and empty mbarriers, and the tile info that travels with a stage.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_epilogue.cuh"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda {

// Tile info: the work tile that a stage begins. It travels with the stage, so that only the
// producer thread computes the schedule.
struct alignas(16) TileInfo {
  int row, col;        // of the plan, where the unit begins
  std::uint32_t rest;  // K blocks; the two highest bits: kContinues, kIsPartial
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
  // Row passes of a warpgroup over its tile, and row groups (of 64 rows) per pass of all
  // warpgroups.
  static constexpr int kRowPasses = kShape.row_passes, kPassGroups = kRowGroups / kRowPasses;
  static constexpr bool kStreamK = kShape.uses_stream_k();
  static constexpr bool kMulticastsRows = kShape.multicasts_rows;
  static constexpr int kThreads = (kGroups + 1) * 128;
  static constexpr int kGroupCols = kCols / kShape.col_groups, kSums = kGroupCols / 2;
  // Whether wgmma accumulates over all of K, with no promotion to separate FP32 accumulators.
  static constexpr bool kNoPromotion = !is_fp8(kMma) && kScales == ScaleKind::at_end;
  static_assert(!kNoPromotion || kRowPasses == 1);
  // Runs of wgmma that a warpgroup has in flight: two where registers allow it, so that one is
  // promoted while the tensor cores compute the other.
  static constexpr int kRuns = kSums * kRowPasses <= 32 && !kNoPromotion ? 2 : 1;
  static constexpr int kKElements = is_fp8(kMma) ? kRowBytes : kRowBytes / 2;

  static constexpr int kRowTile = kRows * kRowBytes, kColTile = kCols * kRowBytes;
  static constexpr int kStageBytes = kRowTile + kColTile;
  // Scales of a stage: those of rows and of columns, loaded from a multiple of four on where groups
  // begin at any row; and the broadcast block scale that all rows or all columns of a warpgroup
  // share, if there is one: as many as there are warpgroups side by side.
  static constexpr int kColScalesAt = (kRows + 4) * 4,
                       kBroadcastAt = kColScalesAt + (kCols + 4) * 4,
                       kScaleBytes = kBroadcastAt + 16;
  static constexpr int kBroadcastScales = kScales == ScaleKind::by_row      ? kShape.col_groups
                                          : kScales == ScaleKind::by_column ? kRowGroups
                                                                            : 0;
  static_assert(kBroadcastScales <= 4);
  // Besides the ring of stages: the epilogue's staging buffers, one per warpgroup and row pass;
  // mbarriers; and padding to begin at a multiple of 1024.
  static constexpr int kStaged = kGroups * kRowPasses * staged_bytes(kGroupCols);
  static constexpr int kBesides = kStaged + 512 + 1024;
  static constexpr int kStageWithScalesBytes =
      kStageBytes + kScaleBytes + static_cast<int>(sizeof(TileInfo));
  static constexpr int kStages = (227 * 1024 - kBesides) / kStageWithScalesBytes;
  static_assert(kStages >= 3);
  static constexpr int kSharedBytes = kStages * kStageWithScalesBytes + kBesides;

  // setmaxnreg: a block has 64 K registers, allotted in steps of 8 per thread.
  static constexpr int kConsumerRegisters = kGroups == 3 ? 152 : 224, kProducerRegisters = 56;
  static constexpr bool kUsesSetmaxnreg = kGroups == 3 || (kGroups > 1 && kSums >= 64);

  // The first row and column of a block's tile within the cluster's unit.
  __device__ static __forceinline__ int first_row(const TileInfo& tile, int rank) {
    return kMulticastsRows ? tile.row : tile.row + rank * kRows;
  }
  __device__ static __forceinline__ int first_col(const TileInfo& tile, int rank) {
    return kMulticastsRows ? tile.col + rank * kCols : tile.col;
  }
  static constexpr int kUnitRows = kShape.unit_rows(), kUnitCols = kShape.unit_cols();
};

// Pipeline state: the stage, and the phase parity of its mbarriers, which flips every time round
// the ring.
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
  // Where the threads of a warpgroup arrive after they have stored partial sums for the next
  // cluster.
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

// One thread initializes the mbarriers. `producers` threads arrive at a full barrier, including the
// one that issues TMA loads.
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
