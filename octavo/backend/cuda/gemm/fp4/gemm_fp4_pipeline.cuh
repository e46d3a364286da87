// GEMM of bf16 by FP4 weights: kernel configuration, pipeline layout and TMA producer warpgroup. A
// cluster of two blocks has neighbouring rows of weights and the same rows of bf16, of which each
// block loads half and multicasts it to both.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/fp4/gemm_fp4_plan.h"
#include "octavo/backend/cuda/gemm/gemm_pipeline.cuh"
#include "octavo/backend/cuda/gemm/gemm_tma_producer.cuh"

namespace octavo::cuda {

template <bool kNvfp4Is, int kColsAre>
struct Fp4Kernel {
  static constexpr bool kNvfp4 = kNvfp4Is;
  static constexpr int kCols = kColsAre, kGroupCols = kCols, kSums = kCols / 2;
  static constexpr int kGroups = 2, kClusterSize = 2, kRows = kGroups * kMmaRows;
  static constexpr int kThreads = (kGroups + 1) * 128;
  static constexpr int kUnitRows = kClusterSize * kRows, kUnitCols = kCols;
  static_assert(kUnitRows == kFp4UnitRows);

  static constexpr int kLines = fp4_stage_lines(kCols);
  static constexpr int kCodeBytes = kLines * kFp4Line / 2;  // of a row, swizzled
  static constexpr int kColLine = kCols * kRowBytes;
  static constexpr int kRowTile = kRows * kCodeBytes, kColTile = kLines * kColLine;
  static constexpr int kStageBytes = kRowTile + kColTile;
  static_assert(kRowTile % 1024 == 0);
  static constexpr int kStaged = kGroups * staged_bytes(kCols);
  static constexpr int kBesides = kStaged + 512 + 1024;
  static constexpr int kStageWithScalesBytes = kStageBytes + static_cast<int>(sizeof(TileInfo));
  static constexpr int kStages = (227 * 1024 - kBesides) / kStageWithScalesBytes;
  static_assert(kStages >= 3);
  static constexpr int kSharedBytes = kStages * kStageWithScalesBytes + kBesides;
  // setmaxnreg: a block has 64 K registers, allotted in steps of 8 per thread.
  static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;
};

// The only work tile of a cluster where units are split along K into parts (split-K). The last part
// is longer than the others by the time that it would wait for them. No part is empty: zero blocks
// mark the end of work.
__device__ __forceinline__ WorkTile part_of(const Fp4Plan& plan, int cluster) {
  const StreamKSchedule& schedule = plan.gemm.schedule;
  const int unit = cluster / plan.parts, part = cluster % plan.parts;
  const int even_blocks = schedule.k_blocks - plan.more_of_last;
  const bool last = part + 1 == plan.parts;
  return {.unit = unit,
          .unit_row = unit % schedule.unit_rows,
          .unit_col = unit / schedule.unit_rows,
          .first = part * even_blocks / plan.parts,
          .end = last ? schedule.k_blocks : (part + 1) * even_blocks / plan.parts,
          .continues = part > 0,
          .is_partial = !last};
}

__device__ __forceinline__ TileScheduler scheduler_of(const Fp4Plan& plan, int cluster) {
  if (plan.parts == 1) return {plan.gemm.schedule, cluster};
  TileScheduler scheduler;
  scheduler.cluster = cluster;
  scheduler.count = 1;
  scheduler.work_tile = part_of(plan, cluster);
  return scheduler;
}

// The first K block of a cluster's work tile. Without parts, a tile that continues partial sums
// runs to the end of K.
__device__ __forceinline__ int first_block(const Fp4Plan& plan, int cluster, const TileInfo& tile) {
  if (plan.parts > 1) return part_of(plan, cluster).first;
  return (tile.rest & TileInfo::kContinues) != 0 ? plan.gemm.schedule.k_blocks - tile.blocks() : 0;
}

template <typename Kernel>
__device__ __forceinline__ void tma_load_fp4_tiles(const Fp4Plan& plan,
                                                   const GemmPipeline<Kernel>& pipeline,
                                                   TileScheduler scheduler, int rank) {
  constexpr int kColSlice = Kernel::kCols / Kernel::kClusterSize;
  constexpr std::uint16_t kMulticastMask = (1 << Kernel::kClusterSize) - 1;
  PipelineState<Kernel> at;
  for (; !scheduler.is_over(); scheduler.next(plan.gemm.schedule)) {
    const WorkTile& work_tile = scheduler.work_tile;
    const TileInfo tile = tile_info_of<Kernel>(plan.gemm, work_tile);
    const int first_row = tile.row + rank * Kernel::kRows, first_col = tile.col + rank * kColSlice;
    for (int block = work_tile.first; block < work_tile.end; ++block, at.next()) {
      const SharedAddress full = pipeline.full_barrier(at.stage),
                          cols = pipeline.cols(at.stage) + rank * kColSlice * kRowBytes;
      mbarrier_wait(pipeline.empty_barrier(at.stage), at.phase ^ 1);
      if (block == work_tile.first) pipeline.tile_infos[at.stage] = tile;
      mbarrier_arrive_expect_tx(full, Kernel::kStageBytes);
      tma_load_2d(pipeline.rows(at.stage), plan.gemm.rows_tensor_map, block * Kernel::kCodeBytes,
                  first_row, full);
#pragma unroll
      for (int line = 0; line < Kernel::kLines; ++line)
        tma_load_2d_multicast(cols + line * Kernel::kColLine, plan.gemm.cols_tensor_map,
                              (block * Kernel::kLines + line) * kFp4Line, first_col, full,
                              kMulticastMask);
    }
  }
  mbarrier_wait(pipeline.empty_barrier(at.stage), at.phase ^ 1);
  pipeline.tile_infos[at.stage] = {};  // zero blocks: end of work
  mbarrier_arrive(pipeline.full_barrier(at.stage));
}

// The producer warpgroup; `thread` is its thread index.
template <typename Kernel>
__device__ __forceinline__ void fp4_producer_warpgroup(const Fp4Plan& plan,
                                                       const GemmPipeline<Kernel>& pipeline,
                                                       const TileScheduler& scheduler, int rank,
                                                       int thread) {
  if (thread == 0) tma_load_fp4_tiles(plan, pipeline, scheduler, rank);
  if (thread != 64) return;
  const bool leaves = plan.parts > 1 ? scheduler.work_tile.is_partial
                                     : plan.gemm.schedule.hands_over_sums(scheduler.cluster);
  const int first = (scheduler.cluster * Kernel::kClusterSize + rank) * Kernel::kGroups;
  for (int group = 0; leaves && group < Kernel::kGroups; ++group)
    signal_partial_sums(plan.gemm, first + group, pipeline.handed_over_barrier(group));
}

}  // namespace octavo::cuda
