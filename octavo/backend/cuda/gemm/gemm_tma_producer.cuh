// What the warps of a block do that do not multiply. One thread has the copy engine bring operands
// and scales into the ring, one warp brings the scale which all columns or rows of a tile share,
// and one thread announces sums that were left for the next cluster.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_group_lookup.cuh"
#include "octavo/backend/cuda/gemm/gemm_pipeline.cuh"
#include "octavo/backend/cuda/gemm/gemm_tile_scales.cuh"
#include "octavo/backend/cuda/gemm/stream_k_partial.cuh"

namespace octavo::cuda {

// Scales of a stage, one for every row of a tile; none where rows share them.
struct ScaleStrip {
  const float* from;
  unsigned bytes;

  __device__ __forceinline__ ScaleStrip(const ScalePlane& plane, int first_row, int rows, int k) {
    const int before = first_row & 3, begin = first_row - before;  // copies begin at 16 bytes
    const int there = plane.each == 1 ? min(before > 0 ? rows + 4 : rows, plane.rows - begin) : 0;
    bytes = there > 0 ? static_cast<unsigned>(there) * 4 : 0;
    from = plane.data + k * plane.pitch + begin;
  }
};

// Where a unit is.
template <typename Kernel>
__device__ __forceinline__ StageNote place_of(const GemmPlan& plan, const GemmItem& item) {
  StageNote note{item.unit_row * Kernel::kUnitRows, item.unit_col * Kernel::kUnitCols,
                 static_cast<std::uint32_t>(item.end - item.first) |
                     (item.goes_on ? StageNote::kGoesOn : 0) |
                     (item.unfinished ? StageNote::kUnfinished : 0),
                 0};
  if (plan.group_count == 0) return note;
  note.group = group_at(plan.groups, plan.group_count, item.unit);
  const PlanGroup& group = plan.groups[note.group];
  const int within = item.unit - group.first_unit;
  note.row = group.row + within % group.unit_rows * Kernel::kUnitRows;
  note.col = group.col + within / group.unit_rows * Kernel::kUnitCols;
  return note;
}

// The items of a cluster, one after the other. The first is worked out where it is made, which is
// before the kernel waits for others: divisions take their time.
struct ItemWalk {
  int cluster = 0, at = 0, count = 0;
  GemmItem item{};

  ItemWalk() = default;
  __device__ __forceinline__ ItemWalk(const GemmSchedule& schedule, int which)
      : cluster(which), count(schedule.items(which)), item(schedule.item(which, 0)) {}
  [[nodiscard]] __device__ __forceinline__ bool is_over() const { return at >= count; }
  __device__ __forceinline__ void next(const GemmSchedule& schedule) {
    if (++at < count) item = schedule.item(cluster, at);
  }
};

// Operands, scales, and what to do with them.
template <typename Kernel>
__device__ __forceinline__ void bring_tiles(const GemmPlan& plan, const GemmRing<Kernel>& ring,
                                            ItemWalk walk, int rank) {
  constexpr bool kShares = Kernel::kBlocks > 1;
  constexpr int kAll = (1 << Kernel::kBlocks) - 1;
  constexpr int kRowShare = kShares && Kernel::kSharesRows ? Kernel::kRows / Kernel::kBlocks : 0,
                kColShare = kShares && !Kernel::kSharesRows ? Kernel::kCols / Kernel::kBlocks : 0;
  constexpr ScaleKind kScales = Kernel::kScales;
  constexpr bool kAtEnd = kScales == ScaleKind::at_end,
                 kRowScales = kScales != ScaleKind::by_column,
                 kColScales = kScales != ScaleKind::by_row;
  RingPlace<Kernel> at;
  for (; !walk.is_over(); walk.next(plan.schedule)) {
    const GemmItem& item = walk.item;
    const StageNote note = place_of<Kernel>(plan, item);
    const int first_row = Kernel::first_row(note, rank), first_col = Kernel::first_col(note, rank);
    for (int block = item.first; block < item.end; ++block, at.next()) {
      const int k = block * Kernel::kKElements;
      const SharedAddress full = ring.is_full(at.stage),
                          rows = ring.rows(at.stage) + rank * kRowShare * kRowBytes,
                          cols = ring.cols(at.stage) + rank * kColShare * kRowBytes;
      unsigned bytes = Kernel::kStageBytes;
      const bool scaled = !kAtEnd || block + 1 == item.end;
      const ScaleStrip row_scales(plan.row_scales, first_row, Kernel::kRows, kAtEnd ? 0 : block),
          col_scales(plan.col_scales, first_col, Kernel::kCols, kAtEnd ? 0 : block);
      if (scaled && kRowScales) bytes += row_scales.bytes;
      if (scaled && kColScales) bytes += col_scales.bytes;
      barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
      if (block == item.first) ring.notes[at.stage] = note;
      barrier_expect(full, bytes);
      if constexpr (kRowShare > 0)
        copy_box_to(rows, plan.rows_map, k, first_row + rank * kRowShare, full, kAll);
      else
        copy_box(rows, plan.rows_map, k, first_row, full);
      if constexpr (kColShare > 0)
        copy_box_to(cols, plan.cols_map, k, first_col + rank * kColShare, full, kAll);
      else
        copy_box(cols, plan.cols_map, k, first_col, full);
      if (scaled && kRowScales && row_scales.bytes > 0)
        copy_bytes(ring.row_scales(at.stage), row_scales.from, row_scales.bytes, full);
      if (scaled && kColScales && col_scales.bytes > 0)
        copy_bytes(ring.col_scales(at.stage), col_scales.from, col_scales.bytes, full);
    }
  }
  barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
  ring.notes[at.stage] = {};  // no blocks: the end
  barrier_arrive(ring.is_full(at.stage));
}

// A warp. It has the numbers of every stage there before the copy engine is done with it: a thread
// that had to bring them, too, would wait for memory between two stages.
template <typename Kernel>
__device__ __forceinline__ void bring_lone_scales(const GemmPlan& plan,
                                                  const GemmRing<Kernel>& ring, ItemWalk walk,
                                                  int rank, int lane) {
  constexpr bool kOfColumns = Kernel::kScales == ScaleKind::by_row;
  constexpr int kApart = kOfColumns ? Kernel::kGroupCols : kMmaRows;
  RingPlace<Kernel> at;
  for (; !walk.is_over(); walk.next(plan.schedule)) {
    const GemmItem& item = walk.item;
    const StageNote note = place_of<Kernel>(plan, item);
    LoneScales lones[Kernel::kLones];
#pragma unroll
    for (int i = 0; i < Kernel::kLones; ++i)
      lones[i].begin(
          kOfColumns ? plan.col_scales : plan.row_scales,
          i * kApart + (kOfColumns ? Kernel::first_col(note, rank) : Kernel::first_row(note, rank)),
          item.first, item.end - item.first, lane);
    for (int block = item.first; block < item.end; ++block, at.next()) {
      float scales[Kernel::kLones];
#pragma unroll
      for (int i = 0; i < Kernel::kLones; ++i) scales[i] = lones[i].take();
      barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
      if (lane != 0) continue;
#pragma unroll
      for (int i = 0; i < Kernel::kLones; ++i)
        store_shared(ring.lone_scale(at.stage, i), scales[i]);
      barrier_arrive(ring.is_full(at.stage));
    }
  }
  barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
  if (lane == 0) barrier_arrive(ring.is_full(at.stage));
}

// `first` is the slot of the block's first warpgroup.
template <typename Kernel>
__device__ __forceinline__ void announce_all(const GemmPlan& plan, const GemmRing<Kernel>& ring,
                                             const ItemWalk& walk, int first) {
  if (!plan.schedule.leaves_sums(walk.cluster)) return;
  for (int group = 0; group < Kernel::kGroups; ++group)
    announce_sums(plan, first + group, ring.has_left(group));
}

// A warpgroup, of which `thread` is one.
template <typename Kernel>
__device__ __forceinline__ void bring_all(const GemmPlan& plan, const GemmRing<Kernel>& ring,
                                          const ItemWalk& walk, int rank, int thread) {
  const int warp = thread / 32, lane = thread % 32;
  if (thread == 0) bring_tiles(plan, ring, walk, rank);
  if constexpr (Kernel::kLones > 0) {
    if (warp == 1) bring_lone_scales(plan, ring, walk, rank, lane);
  }
  if (warp == 2 && lane == 0)
    announce_all(plan, ring, walk, (walk.cluster * Kernel::kBlocks + rank) * Kernel::kGroups);
}

}  // namespace octavo::cuda
