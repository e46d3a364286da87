// The Hopper GEMM kernel: warp-specialized, persistent, stream-K. A block has consumer (math)
// warpgroups, which issue wgmma on 64 rows at a time, and one producer warpgroup, which issues TMA
// loads of operands and scales into a shared-memory pipeline: a ring of stages of 128 bytes of K
// each, with a full and an empty mbarrier per stage.
//
// FP8: sums are promoted to FP32 accumulators in registers after every stage, because the tensor
// cores keep 13 fraction bits of them (docs/numerics/gemm.md), multiplied by their scales where
// those change along K. While one warpgroup promotes, others multiply. bf16 and f16: wgmma keeps
// all bits of f32, so sums stay in its accumulators, unless scales change along K.
//
// Blocks of a cluster have the same rows and neighbouring columns, or the reverse: each block loads
// a slice of the shared operand and multicasts it to all of them.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_epilogue.cuh"
#include "octavo/backend/cuda/gemm/gemm_mainloop.cuh"
#include "octavo/backend/cuda/gemm/gemm_pipeline.cuh"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/gemm/gemm_tile_scales.cuh"
#include "octavo/backend/cuda/gemm/gemm_tma_producer.cuh"
#include "octavo/backend/cuda/gemm/stream_k_partial.cuh"
#include "octavo/backend/cuda/hopper/cluster.cuh"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/pdl.cuh"
#include "octavo/backend/cuda/hopper/setmaxnreg.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/tma.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda {

template <typename Kernel>
__device__ __forceinline__ void consumer_warpgroup(const GemmPlan& plan,
                                                   const GemmPipeline<Kernel>& pipeline,
                                                   int cluster, int rank, int group,
                                                   EpilogueTile epilogue) {
  constexpr ScaleKind kScales = Kernel::kScales;
  const int thread = epilogue.thread, lane = thread % 32;
  const int row_group = group % Kernel::kPassGroups, col_group = group / Kernel::kPassGroups;
  const int tile_row = row_group * kMmaRows + thread / 32 * 16 + lane / 4,
            tile_col = col_group * Kernel::kGroupCols + lane % 4 * 2;
  GemmMainloop<Kernel> mainloop{
      plan,
      pipeline,
      lane,
      row_group,
      col_group,
      tile_row,
      tile_col,
      warp_uniform(smem_descriptor_low(pipeline.rows(0) + row_group * kMmaRows * kRowBytes)),
      warp_uniform(
          smem_descriptor_low(pipeline.cols(0) + col_group * Kernel::kGroupCols * kRowBytes))};
  const int slot = (cluster * Kernel::kClusterSize + rank) * Kernel::kGroups + group;
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
    int left = tile.blocks();
    if (left == 0) break;
    const bool continues = Kernel::kStreamK && (tile.rest & TileInfo::kContinues) != 0,
               is_partial = Kernel::kStreamK && (tile.rest & TileInfo::kIsPartial) != 0;
    const int first_row = Kernel::first_row(tile, rank) + row_group * kMmaRows,
              first_col = Kernel::first_col(tile, rank) + col_group * Kernel::kGroupCols;
    mainloop.tile_row =
        tile_row + (tile.row & 2);  // for scales, which are loaded from a multiple of 4
    mainloop.tile_col = tile_col + (tile.col & 2);
    const bool is_group = plan.group_count > 0;
    if (first_row >= (is_group ? plan.groups[tile.group].row_end : plan.row_count)) {
      for (; left > 0; --left, at.next()) {  // all rows are beyond the edge
        mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
        consumer_release(pipeline, at.stage, lane);
      }
      if (is_partial) mbarrier_arrive(pipeline.handed_over_barrier(group));
      continue;
    }
    if (continues) {
      continue_partial_sums(plan, slot - Kernel::kClusterSize * Kernel::kGroups, thread, 1 + group,
                            sums[0]);
    } else if constexpr (!Kernel::kNoPromotion) {
#pragma unroll
      for (int pass = 0; pass < kRowPasses; ++pass)
#pragma unroll
        for (int s = 0; s < kSums; ++s) sums[pass][s] = 0.0F;
    }
    constexpr bool kAtEnd = kScales == ScaleKind::at_end;
    int used = at.stage;  // the last stage, which holds the scales if they are applied at the end
    if constexpr (Kernel::kNoPromotion) {
      used = mainloop.multiply_on(at, left, continues, sums[0]);
      left = 0;
    }
    if constexpr (Kernel::kRuns == 2) {
      // Main loop, four stages at a time, with the next run of wgmma issued one stage ahead. No run
      // is in flight across loop iterations: the compiler would otherwise serialize every wgmma.
      constexpr int kAtOnce = 4;
      for (; left >= kAtOnce; left -= kAtOnce) {
        PipelineState<Kernel> ahead = at;
        mbarrier_wait(pipeline.full_barrier(ahead.stage), ahead.phase);
        mainloop.issue(ahead.stage, 0, runs[0]);
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j, at.next()) {
          const bool last = j + 1 == kAtOnce && left == kAtOnce;
          used = at.stage;
          if (j + 1 < kAtOnce) {
            ahead.next();
            mbarrier_wait(pipeline.full_barrier(ahead.stage), ahead.phase);
            mainloop.issue(ahead.stage, 0, runs[(j + 1) % 2]);
            mainloop.template promote<1>(at.stage, mainloop.scales(at.stage, 0), false, runs[j % 2],
                                         sums[0]);
          } else {
            mainloop.template promote<0>(at.stage, mainloop.scales(at.stage, 0), kAtEnd && last,
                                         runs[j % 2], sums[0]);
          }
        }
      }
    }
    // Main loop, one stage at a time. Two warpgroups keep the tensor cores busy only if each issues
    // its next wgmma before the other's completes, so nothing may delay the issue. Hence with
    // several row passes a warpgroup waits for the next full barrier and loads the next scales
    // while its wgmma is in flight.
    constexpr bool kAhead = kRowPasses > 1;
    typename GemmMainloop<Kernel>::RunScales scales[kRowPasses], next[kRowPasses];
    const auto load_scales = [&](int stage, auto& to) {
#pragma unroll
      for (int pass = 0; pass < kRowPasses; ++pass) to[pass] = mainloop.scales(stage, pass);
    };
    if constexpr (kAhead) load_scales(at.stage, next);
    bool next_is_full = false;
    // Unrolling computes the addresses of the next stage while this one is promoted. Not where that
    // needs more registers than there are.
    constexpr bool kFewScales = kAtEnd || kScales == ScaleKind::by_row;
    constexpr int kCopies = kRowPasses == 1 && Kernel::kRuns == 1 && kFewScales ? 4 : 1;
#pragma unroll kCopies
    for (; left > 0; --left) {
      if (!kAhead && !next_is_full) mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
      used = at.stage;
      at.next();
      if constexpr (kAhead) {
#pragma unroll
        for (int pass = 0; pass < kRowPasses; ++pass) scales[pass] = next[pass];
      } else {
        load_scales(used, scales);
      }
#pragma unroll
      for (int pass = 0; pass < kRowPasses; ++pass) {
        const bool last = pass + 1 == kRowPasses;
        mainloop.issue(used, pass, runs[0]);
        if (!kAhead) next_is_full = mbarrier_test_wait(pipeline.full_barrier(at.stage), at.phase);
        if (kAhead && last && left > 1) {
          mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
          load_scales(at.stage, next);
        }
        mainloop.template promote<0>(used, scales[pass], !last || (kAtEnd && left == 1), runs[0],
                                     sums[pass]);
      }
    }
    if (is_partial) {
      if (kAtEnd) consumer_release(pipeline, used, lane);
      store_partial_sums(plan, slot, thread, sums[0]);
      mbarrier_arrive(pipeline.handed_over_barrier(group));
      continue;
    }
#pragma unroll
    for (int pass = 0; pass < kRowPasses; ++pass) {
      // Epilogue. Promoted sums are stored with neighbours exchanged (GemmMainloop::place) and are
      // put in order here; wgmma accumulators are in order, and no registers are left for a copy of
      // them.
      float ordered[kSums];
      float(&made)[kSums] = Kernel::kNoPromotion ? sums[pass] : ordered;
      if constexpr (!Kernel::kNoPromotion) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) ordered[i] = sums[pass][GemmMainloop<Kernel>::place(i)];
      }
      if (kAtEnd) {  // the last stage holds the scales
        scale_sums(plan, tensor_scale, mainloop.row_scales_of(used, pass),
                   pipeline.col_scales(used) + mainloop.tile_col * sizeof(float), made);
        if (pass + 1 == kRowPasses) consumer_release(pipeline, used, lane);
      }
      EpilogueTile at_pass = epilogue;
      at_pass.staged += pass * staged_bytes(Kernel::kGroupCols);
      at_pass.row = first_row + pass * Kernel::kPassGroups * kMmaRows;
      at_pass.col = first_col;
      bool whole = true;
      if (is_group) whole = at_pass.place_in_group(plan.groups[tile.group], Kernel::kGroupCols);
      if (plan.uses_tma_store && whole)
        tma_store_tile<kRowPasses>(plan, at_pass, 1 + group, made);
      else
        store_elements(plan, at_pass, 1 + group, made);
    }
  }
  if (plan.uses_tma_store && thread == 0) tma_store_wait();
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    gemm_kernel(const __grid_constant__ GemmPlan plan) {
  extern __shared__ unsigned char memory[];
  const SharedAddress start = shared_address(memory), aligned = (start + 1023) & ~1023u;
  unsigned char* const base = memory + (aligned - start);
  constexpr int kTiles = Kernel::kStages * Kernel::kStageBytes, kScales = kTiles + Kernel::kStaged,
                kTileInfos = kScales + Kernel::kStages * Kernel::kScaleBytes;
  GemmPipeline<Kernel> pipeline;
  pipeline.tiles = aligned;
  pipeline.scales = aligned + kScales;
  pipeline.tile_infos = reinterpret_cast<TileInfo*>(base + kTileInfos);
  pipeline.full = aligned + kTileInfos + Kernel::kStages * static_cast<int>(sizeof(TileInfo));
  pipeline.empty = pipeline.full + 8 * Kernel::kStages;
  pipeline.handed_over = pipeline.empty + 8 * Kernel::kStages;

  const int thread = static_cast<int>(threadIdx.x);
  const int rank = Kernel::kClusterSize > 1 ? static_cast<int>(rank_in_cluster()) : 0;
  const int cluster = static_cast<int>(blockIdx.x) / Kernel::kClusterSize;
  if (thread == 0) init_pipeline(pipeline, Kernel::kBroadcastScales > 0 ? 2 : 1);
  const int group = __shfl_sync(0xFFFFFFFFu, thread / 128, 0);
  ItemWalk walk;
  if (group == Kernel::kGroups) {
    if (thread % 128 == 0) {
      prefetch_tensor_map(plan.rows_tensor_map);
      prefetch_tensor_map(plan.cols_tensor_map);
    }
    walk = ItemWalk(plan.schedule, cluster);
  }
  if constexpr (Kernel::kClusterSize > 1)
    cluster_sync();
  else
    __syncthreads();

  const bool has_gate = plan.gate.number != nullptr;
  if (has_gate) pdl_launch_dependents();  // of several gated kernels in a row, most exit at once
  pdl_wait();
  if (has_gate && *plan.gate.number != plan.gate.wanted) return;
  if (group == Kernel::kGroups) {
    if constexpr (Kernel::kUsesSetmaxnreg) setmaxnreg_dec<Kernel::kProducerRegisters>();
    producer_warpgroup(plan, pipeline, walk, rank, thread % 128);
    pdl_launch_dependents();
  } else {
    if constexpr (Kernel::kUsesSetmaxnreg) setmaxnreg_inc<Kernel::kConsumerRegisters>();
    EpilogueTile epilogue;
    epilogue.row_end = plan.row_count;
    epilogue.col_end = plan.col_count;
    epilogue.thread = thread % 128;
    epilogue.staged = aligned + kTiles + group * (Kernel::kStaged / Kernel::kGroups);
    consumer_warpgroup(plan, pipeline, cluster, rank, group, epilogue);
  }
  // A block must not exit while cluster peers multicast to it or arrive at its mbarriers.
  if constexpr (Kernel::kClusterSize > 1) cluster_sync();
}

}  // namespace octavo::cuda
