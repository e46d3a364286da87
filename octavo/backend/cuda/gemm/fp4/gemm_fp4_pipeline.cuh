// Products of bf16 by FP4 weights: what their kernels are made of, and what brings operands into
// the ring. A pair of blocks has neighbouring rows of weights and the same rows of bf16, of which
// each brings half for both.
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
  static constexpr int kGroups = 2, kBlocks = 2, kRows = kGroups * kMmaRows;
  static constexpr int kThreads = (kGroups + 1) * 128;
  static constexpr int kUnitRows = kBlocks * kRows, kUnitCols = kCols;
  static_assert(kUnitRows == kFp4UnitRows);

  static constexpr int kLines = fp4_stage_lines(kCols);
  static constexpr int kCodeBytes = kLines * kFp4Line / 2;  // of a row, swizzled among themselves
  static constexpr int kColLine = kCols * kRowBytes;
  static constexpr int kRowTile = kRows * kCodeBytes, kColTile = kLines * kColLine;
  static constexpr int kStageBytes = kRowTile + kColTile;
  static_assert(kRowTile % 1024 == 0);
  static constexpr int kStaged = kGroups * staged_bytes(kCols);
  static constexpr int kBesides = kStaged + 512 + 1024;
  static constexpr int kRing = kStageBytes + static_cast<int>(sizeof(StageNote));
  static constexpr int kStages = (227 * 1024 - kBesides) / kRing;
  static_assert(kStages >= 3);
  static constexpr int kSharedBytes = kStages * kRing + kBesides;
  // Registers: those of a block are 64 K, in steps of 8 a thread.
  static constexpr int kUp = 232, kDown = 40;
};

// The only item of a cluster where units are cut into parts. The last part is longer than others,
// by what it would wait for them. None is empty: no blocks are how the end is told.
__device__ __forceinline__ GemmItem part_of(const Fp4Plan& plan, int cluster) {
  const GemmSchedule& schedule = plan.gemm.schedule;
  const int unit = cluster / plan.parts, part = cluster % plan.parts;
  const int shared = schedule.k_blocks - plan.more_of_last;
  const bool last = part + 1 == plan.parts;
  return {.unit = unit,
          .unit_row = unit % schedule.unit_rows,
          .unit_col = unit / schedule.unit_rows,
          .first = part * shared / plan.parts,
          .end = last ? schedule.k_blocks : (part + 1) * shared / plan.parts,
          .goes_on = part > 0,
          .unfinished = !last};
}

__device__ __forceinline__ ItemWalk walk_of(const Fp4Plan& plan, int cluster) {
  if (plan.parts == 1) return {plan.gemm.schedule, cluster};
  ItemWalk walk;
  walk.cluster = cluster;
  walk.count = 1;
  walk.item = part_of(plan, cluster);
  return walk;
}

// The first block of what a cluster was told to do. Without parts, sums that go on do so to the end
// of K.
__device__ __forceinline__ int first_block(const Fp4Plan& plan, int cluster,
                                           const StageNote& note) {
  if (plan.parts > 1) return part_of(plan, cluster).first;
  return (note.rest & StageNote::kGoesOn) != 0 ? plan.gemm.schedule.k_blocks - note.blocks() : 0;
}

template <typename Kernel>
__device__ __forceinline__ void bring_fp4_tiles(const Fp4Plan& plan, const GemmRing<Kernel>& ring,
                                                ItemWalk walk, int rank) {
  constexpr int kShare = Kernel::kCols / Kernel::kBlocks;
  constexpr std::uint16_t kAll = (1 << Kernel::kBlocks) - 1;
  RingPlace<Kernel> at;
  for (; !walk.is_over(); walk.next(plan.gemm.schedule)) {
    const GemmItem& item = walk.item;
    const StageNote note = place_of<Kernel>(plan.gemm, item);
    const int first_row = note.row + rank * Kernel::kRows, first_col = note.col + rank * kShare;
    for (int block = item.first; block < item.end; ++block, at.next()) {
      const SharedAddress full = ring.is_full(at.stage),
                          cols = ring.cols(at.stage) + rank * kShare * kRowBytes;
      barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
      if (block == item.first) ring.notes[at.stage] = note;
      barrier_expect(full, Kernel::kStageBytes);
      copy_box(ring.rows(at.stage), plan.gemm.rows_map, block * Kernel::kCodeBytes, first_row,
               full);
#pragma unroll
      for (int line = 0; line < Kernel::kLines; ++line)
        copy_box_to(cols + line * Kernel::kColLine, plan.gemm.cols_map,
                    (block * Kernel::kLines + line) * kFp4Line, first_col, full, kAll);
    }
  }
  barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
  ring.notes[at.stage] = {};  // no blocks: the end
  barrier_arrive(ring.is_full(at.stage));
}

// A warpgroup, of which `thread` is one.
template <typename Kernel>
__device__ __forceinline__ void bring_fp4(const Fp4Plan& plan, const GemmRing<Kernel>& ring,
                                          const ItemWalk& walk, int rank, int thread) {
  if (thread == 0) bring_fp4_tiles(plan, ring, walk, rank);
  if (thread != 64) return;
  const bool leaves =
      plan.parts > 1 ? walk.item.unfinished : plan.gemm.schedule.leaves_sums(walk.cluster);
  const int first = (walk.cluster * Kernel::kBlocks + rank) * Kernel::kGroups;
  for (int group = 0; leaves && group < Kernel::kGroups; ++group)
    announce_sums(plan.gemm, first + group, ring.has_left(group));
}

}  // namespace octavo::cuda
