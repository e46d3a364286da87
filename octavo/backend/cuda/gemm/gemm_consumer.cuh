// A consumer (math) warpgroup: for each tile that the producer announces it runs the main loop
// (gemm_mainloop.cuh) and then the epilogue, or hands its partial sums to the next cluster
// (stream-K).
#pragma once

#include "octavo/backend/cuda/gemm/gemm_epilogue.cuh"
#include "octavo/backend/cuda/gemm/gemm_mainloop.cuh"
#include "octavo/backend/cuda/gemm/gemm_pipeline.cuh"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/gemm/gemm_tile_scales.cuh"
#include "octavo/backend/cuda/gemm/stream_k_partial.cuh"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/tma.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda {

// A tile whose rows of this warpgroup all lie beyond the edge: releases its stages.
template <typename Kernel>
__device__ __forceinline__ void skip_tile(const GemmPipeline<Kernel>& pipeline,
                                          PipelineState<Kernel>& at, int left, int lane) {
  for (; left > 0; --left, at.next()) {
    mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
    consumer_release(pipeline, at.stage, lane);
  }
}

template <int kPasses, int kSums>
__device__ __forceinline__ void clear_sums(float (&sums)[kPasses][kSums]) {
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass)
#pragma unroll
    for (int s = 0; s < kSums; ++s) sums[pass][s] = 0.0F;
}

// From the sums of a tile to memory: scales that are applied at the end, which stage `used` holds,
// then the plan's epilogue. `at` is where the tile's first row pass begins.
template <typename Kernel>
__device__ __forceinline__ void tile_epilogue(const GemmPlan& plan,
                                              const GemmMainloop<Kernel>& mainloop, int used,
                                              float tensor_scale, const TileInfo& tile,
                                              const EpilogueTile& at, int warpgroup,
                                              typename GemmMainloop<Kernel>::Sums sums) {
  constexpr int kSums = Kernel::kSums, kRowPasses = Kernel::kRowPasses;
#pragma unroll
  for (int pass = 0; pass < kRowPasses; ++pass) {
    // Promoted sums are stored with neighbours exchanged (GemmMainloop::place) and are put in order
    // here; wgmma accumulators are in order, and no registers are left for a copy of them.
    float ordered[kSums];
    float(&made)[kSums] = Kernel::kNoPromotion ? sums[pass] : ordered;
    if constexpr (!Kernel::kNoPromotion) {
#pragma unroll
      for (int i = 0; i < kSums; ++i) ordered[i] = sums[pass][GemmMainloop<Kernel>::place(i)];
    }
    if (GemmMainloop<Kernel>::kAtEnd) {  // the last stage holds the scales
      scale_sums(plan, tensor_scale, mainloop.row_scales_of(used, pass),
                 mainloop.pipeline.col_scales(used) + mainloop.tile_col * sizeof(float), made);
      if (pass + 1 == kRowPasses) consumer_release(mainloop.pipeline, used, mainloop.lane);
    }
    EpilogueTile at_pass = at;
    at_pass.staged += pass * staged_bytes(Kernel::kGroupCols);
    at_pass.row += pass * Kernel::kPassGroups * kMmaRows;
    bool whole = true;
    if (plan.group_count > 0)
      whole = at_pass.place_in_group(plan.groups[tile.group], Kernel::kGroupCols);
    if (plan.uses_tma_store && whole)
      tma_store_tile<kRowPasses>(plan, at_pass, 1 + warpgroup, made);
    else
      store_elements(plan, at_pass, 1 + warpgroup, made);
  }
}

template <typename Kernel>
__device__ __forceinline__ void consumer_warpgroup(const GemmPlan& plan,
                                                   const GemmPipeline<Kernel>& pipeline,
                                                   int cluster, int rank, int warpgroup,
                                                   EpilogueTile epilogue) {
  constexpr ScaleKind kScales = Kernel::kScales;
  const int thread = epilogue.thread, lane = thread % 32;
  const int warpgroup_row = warpgroup % Kernel::kPassGroups,
            warpgroup_col = warpgroup / Kernel::kPassGroups;
  const int tile_row = warpgroup_row * kMmaRows + thread / 32 * 16 + lane / 4,
            tile_col = warpgroup_col * Kernel::kGroupCols + lane % 4 * 2;
  GemmMainloop<Kernel> mainloop{
      plan,
      pipeline,
      lane,
      warpgroup_row,
      warpgroup_col,
      tile_row,
      tile_col,
      warp_uniform(smem_descriptor_low(pipeline.rows(0) + warpgroup_row * kMmaRows * kRowBytes)),
      warp_uniform(
          smem_descriptor_low(pipeline.cols(0) + warpgroup_col * Kernel::kGroupCols * kRowBytes))};
  const int slot = (cluster * Kernel::kClusterSize + rank) * Kernel::kGroups + warpgroup;
  constexpr int kSums = Kernel::kSums, kRowPasses = Kernel::kRowPasses;
  float runs[Kernel::kRuns][kSums];
#pragma unroll
  for (int r = 0; r < Kernel::kRuns; ++r)
#pragma unroll
    for (int i = 0; i < kSums; ++i) runs[r][i] = 0.0F;

  const float tensor_scale = kScales == ScaleKind::at_end ? per_tensor_scale(plan) : 1.0F;
  float sums[kRowPasses][kSums];
  if constexpr (Kernel::kNoPromotion) {  // the first wgmma overwrites them
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[0][i] = 0.0F;
  }
  PipelineState<Kernel> at;
  while (true) {
    mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
    const TileInfo tile = pipeline.tile_infos[at.stage];
    const int left = tile.blocks();
    if (left == 0) break;
    const bool continues = Kernel::kStreamK && (tile.rest & TileInfo::kContinues) != 0,
               is_partial = Kernel::kStreamK && (tile.rest & TileInfo::kIsPartial) != 0;
    const int first_row = Kernel::first_row(tile, rank) + warpgroup_row * kMmaRows,
              first_col = Kernel::first_col(tile, rank) + warpgroup_col * Kernel::kGroupCols;
    // For scales, which are loaded from a multiple of 4.
    mainloop.tile_row = tile_row + (tile.row & 2);
    mainloop.tile_col = tile_col + (tile.col & 2);
    const bool is_group = plan.group_count > 0;
    if (first_row >= (is_group ? plan.groups[tile.group].row_end : plan.row_count)) {
      skip_tile(pipeline, at, left, lane);
      if (is_partial) mbarrier_arrive(pipeline.handed_over_barrier(warpgroup));
      continue;
    }
    if (continues) {
      continue_partial_sums(plan, slot - Kernel::kClusterSize * Kernel::kGroups, thread,
                            1 + warpgroup, sums[0]);
    } else if constexpr (!Kernel::kNoPromotion) {
      clear_sums(sums);
    }
    const int used = mainloop.multiply_tile(at, left, continues, runs, sums);
    if (is_partial) {
      if (GemmMainloop<Kernel>::kAtEnd) consumer_release(pipeline, used, lane);
      store_partial_sums(plan, slot, thread, sums[0]);
      mbarrier_arrive(pipeline.handed_over_barrier(warpgroup));
      continue;
    }
    epilogue.row = first_row;
    epilogue.col = first_col;
    tile_epilogue(plan, mainloop, used, tensor_scale, tile, epilogue, warpgroup, sums);
  }
  if (plan.uses_tma_store && thread == 0) tma_store_wait();
}

}  // namespace octavo::cuda
