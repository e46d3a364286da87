// The producer warpgroup of a GEMM kernel. One thread issues TMA loads of operands and scales into
// the pipeline, one warp loads the broadcast block scales that all columns or rows of a warpgroup
// share, and one thread signals stream-K partial sums that were handed over to the next cluster.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_group_lookup.cuh"
#include "octavo/backend/cuda/gemm/gemm_pipeline.cuh"
#include "octavo/backend/cuda/gemm/gemm_tile_scales.cuh"
#include "octavo/backend/cuda/gemm/stream_k_partial.cuh"

namespace octavo::cuda {

// Per-row scales of a tile for a stage; empty where rows share a scale.
struct ScaleVector {
  const float* from;
  unsigned bytes;

  __device__ __forceinline__ ScaleVector(const ScalePlane& plane, int first_row, int rows, int k) {
    const int before = first_row & 3, begin = first_row - before;  // TMA: multiples of 16 bytes
    const int there = plane.each == 1 ? min(before > 0 ? rows + 4 : rows, plane.rows - begin) : 0;
    bytes = there > 0 ? static_cast<unsigned>(there) * 4 : 0;
    from = plane.data + k * plane.pitch + begin;
  }
};

// The tile info of a work tile: where its unit is.
template <typename Kernel>
__device__ __forceinline__ TileInfo tile_info_of(const GemmPlan& plan, const WorkTile& work_tile) {
  TileInfo tile{work_tile.unit_row * Kernel::kUnitRows, work_tile.unit_col * Kernel::kUnitCols,
                static_cast<std::uint32_t>(work_tile.end - work_tile.first) |
                    (work_tile.continues ? TileInfo::kContinues : 0) |
                    (work_tile.is_partial ? TileInfo::kIsPartial : 0),
                0};
  if (plan.group_count == 0) return tile;
  tile.group = group_at(plan.groups, plan.group_count, work_tile.unit);
  const PlanGroup& group = plan.groups[tile.group];
  const int within = work_tile.unit - group.first_unit;
  tile.row = group.row + within % group.unit_rows * Kernel::kUnitRows;
  tile.col = group.col + within / group.unit_rows * Kernel::kUnitCols;
  return tile;
}

// Iterates over the work tiles of a cluster. The first work tile is computed at construction,
// before pdl_wait(): its divisions are slow.
struct TileScheduler {
  int cluster = 0, at = 0, count = 0;
  WorkTile work_tile{};

  TileScheduler() = default;
  __device__ __forceinline__ TileScheduler(const StreamKSchedule& schedule, int which)
      : cluster(which),
        count(schedule.work_tiles(which)),
        work_tile(schedule.work_tile(which, 0)) {}
  [[nodiscard]] __device__ __forceinline__ bool is_over() const { return at >= count; }
  __device__ __forceinline__ void next(const StreamKSchedule& schedule) {
    if (++at < count) work_tile = schedule.work_tile(cluster, at);
  }
};

// Producer thread: for every stage waits for the empty barrier, writes tile info, and issues TMA
// loads that complete on the full barrier.
template <typename Kernel>
__device__ __forceinline__ void tma_load_tiles(const GemmPlan& plan,
                                               const GemmPipeline<Kernel>& pipeline,
                                               TileScheduler scheduler, int rank) {
  constexpr bool kMulticasts = Kernel::kClusterSize > 1;
  constexpr int kMulticastMask = (1 << Kernel::kClusterSize) - 1;
  constexpr int kRowSlice = kMulticasts && Kernel::kMulticastsRows
                                ? Kernel::kRows / Kernel::kClusterSize
                                : 0,
                kColSlice = kMulticasts && !Kernel::kMulticastsRows
                                ? Kernel::kCols / Kernel::kClusterSize
                                : 0;
  constexpr ScaleKind kScales = Kernel::kScales;
  constexpr bool kAtEnd = kScales == ScaleKind::at_end,
                 kRowScales = kScales != ScaleKind::by_column,
                 kColScales = kScales != ScaleKind::by_row;
  PipelineState<Kernel> at;
  for (; !scheduler.is_over(); scheduler.next(plan.schedule)) {
    const WorkTile& work_tile = scheduler.work_tile;
    const TileInfo tile = tile_info_of<Kernel>(plan, work_tile);
    const int first_row = Kernel::first_row(tile, rank), first_col = Kernel::first_col(tile, rank);
    for (int block = work_tile.first; block < work_tile.end; ++block, at.next()) {
      const int k = block * Kernel::kKElements;
      const SharedAddress full = pipeline.full_barrier(at.stage),
                          rows = pipeline.rows(at.stage) + rank * kRowSlice * kRowBytes,
                          cols = pipeline.cols(at.stage) + rank * kColSlice * kRowBytes;
      unsigned bytes = Kernel::kStageBytes;
      const bool scaled = !kAtEnd || block + 1 == work_tile.end;
      const ScaleVector row_scales(plan.row_scales, first_row, Kernel::kRows, kAtEnd ? 0 : block),
          col_scales(plan.col_scales, first_col, Kernel::kCols, kAtEnd ? 0 : block);
      if (scaled && kRowScales) bytes += row_scales.bytes;
      if (scaled && kColScales) bytes += col_scales.bytes;
      mbarrier_wait(pipeline.empty_barrier(at.stage), at.phase ^ 1);
      if (block == work_tile.first) pipeline.tile_infos[at.stage] = tile;
      mbarrier_arrive_expect_tx(full, bytes);
      if constexpr (kRowSlice > 0)
        tma_load_2d_multicast(rows, plan.rows_tensor_map, k, first_row + rank * kRowSlice, full,
                              kMulticastMask);
      else
        tma_load_2d(rows, plan.rows_tensor_map, k, first_row, full);
      if constexpr (kColSlice > 0)
        tma_load_2d_multicast(cols, plan.cols_tensor_map, k, first_col + rank * kColSlice, full,
                              kMulticastMask);
      else
        tma_load_2d(cols, plan.cols_tensor_map, k, first_col, full);
      if (scaled && kRowScales && row_scales.bytes > 0)
        tma_load_1d(pipeline.row_scales(at.stage), row_scales.from, row_scales.bytes, full);
      if (scaled && kColScales && col_scales.bytes > 0)
        tma_load_1d(pipeline.col_scales(at.stage), col_scales.from, col_scales.bytes, full);
    }
  }
  mbarrier_wait(pipeline.empty_barrier(at.stage), at.phase ^ 1);
  pipeline.tile_infos[at.stage] = {};  // zero blocks: end of work
  mbarrier_arrive(pipeline.full_barrier(at.stage));
}

// Producer warp for broadcast block scales. It has the scale of a stage ready before the TMA loads
// of that stage complete; the thread that issues TMA loads would have to wait for global memory
// between two stages.
template <typename Kernel>
__device__ __forceinline__ void load_broadcast_scales(const GemmPlan& plan,
                                                      const GemmPipeline<Kernel>& pipeline,
                                                      TileScheduler scheduler, int rank, int lane) {
  constexpr bool kOfColumns = Kernel::kScales == ScaleKind::by_row;
  constexpr int kApart = kOfColumns ? Kernel::kGroupCols : kMmaRows;
  PipelineState<Kernel> at;
  for (; !scheduler.is_over(); scheduler.next(plan.schedule)) {
    const WorkTile& work_tile = scheduler.work_tile;
    const TileInfo tile = tile_info_of<Kernel>(plan, work_tile);
    BroadcastScales broadcast_scales[Kernel::kBroadcastScales];
#pragma unroll
    for (int i = 0; i < Kernel::kBroadcastScales; ++i)
      broadcast_scales[i].begin(
          kOfColumns ? plan.col_scales : plan.row_scales,
          i * kApart + (kOfColumns ? Kernel::first_col(tile, rank) : Kernel::first_row(tile, rank)),
          work_tile.first, work_tile.end - work_tile.first, lane);
    for (int block = work_tile.first; block < work_tile.end; ++block, at.next()) {
      float scales[Kernel::kBroadcastScales];
#pragma unroll
      for (int i = 0; i < Kernel::kBroadcastScales; ++i) scales[i] = broadcast_scales[i].take();
      mbarrier_wait(pipeline.empty_barrier(at.stage), at.phase ^ 1);
      if (lane != 0) continue;
#pragma unroll
      for (int i = 0; i < Kernel::kBroadcastScales; ++i)
        store_shared(pipeline.broadcast_scale(at.stage, i), scales[i]);
      mbarrier_arrive(pipeline.full_barrier(at.stage));
    }
  }
  mbarrier_wait(pipeline.empty_barrier(at.stage), at.phase ^ 1);
  if (lane == 0) mbarrier_arrive(pipeline.full_barrier(at.stage));
}

// `first` is the slot of the block's first warpgroup.
template <typename Kernel>
__device__ __forceinline__ void signal_all_partial_sums(const GemmPlan& plan,
                                                        const GemmPipeline<Kernel>& pipeline,
                                                        const TileScheduler& scheduler, int first) {
  if (!plan.schedule.hands_over_sums(scheduler.cluster)) return;
  for (int group = 0; group < Kernel::kGroups; ++group)
    signal_partial_sums(plan, first + group, pipeline.handed_over_barrier(group));
}

// The producer warpgroup; `thread` is its thread index.
template <typename Kernel>
__device__ __forceinline__ void producer_warpgroup(const GemmPlan& plan,
                                                   const GemmPipeline<Kernel>& pipeline,
                                                   const TileScheduler& scheduler, int rank,
                                                   int thread) {
  const int warp = thread / 32, lane = thread % 32;
  if (thread == 0) tma_load_tiles(plan, pipeline, scheduler, rank);
  if constexpr (Kernel::kBroadcastScales > 0) {
    if (warp == 1) load_broadcast_scales(plan, pipeline, scheduler, rank, lane);
  }
  if (warp == 2 && lane == 0)
    signal_all_partial_sums(plan, pipeline, scheduler,
                            (scheduler.cluster * Kernel::kClusterSize + rank) * Kernel::kGroups);
}

}  // namespace octavo::cuda
