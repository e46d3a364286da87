// Products on the tensor cores of Hopper. A block has warpgroups that multiply, 64 rows at a time,
// and one that has the copy engine bring operands and scales, which pass through a ring of stages
// in shared memory, 128 bytes of K each.
//
// Sums of FP8 products leave the tensor cores after every stage, because those keep 13 bits of them
// (docs/numerics/gemm.md), and are added up in f32 registers, times their scales where those change
// along K. While one warpgroup adds, others multiply. Sums of bf16 and f16 products keep all bits
// of f32 and stay, unless scales change along K.
//
// Blocks of a cluster have the same rows and neighbouring columns: each fetches its share of the
// rows for all of them.
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
__device__ __forceinline__ void multiply_tiles(const GemmPlan& plan, const GemmRing<Kernel>& ring,
                                               int cluster, int rank, int group, FinishAt finish) {
  constexpr ScaleKind kScales = Kernel::kScales;
  const int thread = finish.thread, lane = thread % 32;
  const int row_group = group % Kernel::kWaveGroups, col_group = group / Kernel::kWaveGroups;
  const int tile_row = row_group * kMmaRows + thread / 32 * 16 + lane / 4,
            tile_col = col_group * Kernel::kGroupCols + lane % 4 * 2;
  GemmWorker<Kernel> worker{
      plan,
      ring,
      lane,
      row_group,
      col_group,
      tile_row,
      tile_col,
      same_in_warp(operand_place(ring.rows(0) + row_group * kMmaRows * kRowBytes)),
      same_in_warp(operand_place(ring.cols(0) + col_group * Kernel::kGroupCols * kRowBytes))};
  const int slot = (cluster * Kernel::kBlocks + rank) * Kernel::kGroups + group;
  constexpr int kSums = Kernel::kSums, kWaves = Kernel::kWaves;
  float runs[Kernel::kRuns][kSums];
#pragma unroll
  for (int r = 0; r < Kernel::kRuns; ++r)
#pragma unroll
    for (int i = 0; i < kSums; ++i) runs[r][i] = 0.0F;

  const float lone = kScales == ScaleKind::at_end ? lone_at_end(plan) : 1.0F;
  float sums[kWaves][kSums];
  if constexpr (Kernel::kStays) {  // begun by the instruction; what stands there is not looked at
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[0][i] = 0.0F;
  }
  RingPlace<Kernel> at;
  while (true) {
    barrier_wait(ring.is_full(at.stage), at.phase);
    const StageNote note = ring.notes[at.stage];
    int left = note.blocks();
    if (left == 0) break;
    const bool goes_on = Kernel::kDeals && (note.rest & StageNote::kGoesOn) != 0,
               unfinished = Kernel::kDeals && (note.rest & StageNote::kUnfinished) != 0;
    const int first_row = Kernel::first_row(note, rank) + row_group * kMmaRows,
              first_col = Kernel::first_col(note, rank) + col_group * Kernel::kGroupCols;
    worker.tile_row =
        tile_row + (note.row & 2);  // of scales, which are copied from a multiple of 4
    worker.tile_col = tile_col + (note.col & 2);
    const bool is_group = plan.group_count > 0;
    if (first_row >= (is_group ? plan.groups[note.group].row_end : plan.row_count)) {
      for (; left > 0; --left, at.next()) {  // all rows hang over the edge
        barrier_wait(ring.is_full(at.stage), at.phase);
        release(ring, at.stage, lane);
      }
      if (unfinished) barrier_arrive(ring.has_left(group));
      continue;
    }
    if (goes_on) {
      go_on_from(plan, slot - Kernel::kBlocks * Kernel::kGroups, thread, 1 + group, sums[0]);
    } else if constexpr (!Kernel::kStays) {
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
        for (int s = 0; s < kSums; ++s) sums[wave][s] = 0.0F;
    }
    constexpr bool kAtEnd = kScales == ScaleKind::at_end;
    int used = at.stage;  // the last stage, which has the scales where they are at the end
    if constexpr (Kernel::kStays) {
      used = worker.multiply_on(at, left, goes_on, sums[0]);
      left = 0;
    }
    if constexpr (Kernel::kRuns == 2) {
      // Four stages at a time, one run ahead. None is under way where the loop begins again: the
      // compiler would make each of them wait.
      constexpr int kAtOnce = 4;
      for (; left >= kAtOnce; left -= kAtOnce) {
        RingPlace<Kernel> ahead = at;
        barrier_wait(ring.is_full(ahead.stage), ahead.phase);
        worker.begin(ahead.stage, 0, runs[0]);
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j, at.next()) {
          const bool last = j + 1 == kAtOnce && left == kAtOnce;
          used = at.stage;
          if (j + 1 < kAtOnce) {
            ahead.next();
            barrier_wait(ring.is_full(ahead.stage), ahead.phase);
            worker.begin(ahead.stage, 0, runs[(j + 1) % 2]);
            worker.template end<1>(at.stage, worker.scales(at.stage, 0), false, runs[j % 2],
                                   sums[0]);
          } else {
            worker.template end<0>(at.stage, worker.scales(at.stage, 0), kAtEnd && last,
                                   runs[j % 2], sums[0]);
          }
        }
      }
    }
    // One stage after the other. Two warpgroups keep the tensor cores busy only if each is back
    // with its next products before the other's are done: nothing may stand in front of them. So
    // they wait for the next stage and load its scales while products are under way.
    constexpr bool kAhead = kWaves > 1;
    typename GemmWorker<Kernel>::RunScales scales[kWaves], next[kWaves];
    const auto load_scales = [&](int stage, auto& to) {
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave) to[wave] = worker.scales(stage, wave);
    };
    if constexpr (kAhead) load_scales(at.stage, next);
    bool is_full = false;
    // Copies of the loop have the addresses of the next stage worked out while this one is added.
    // Not where that takes more registers than there are.
    constexpr bool kFewScales = kAtEnd || kScales == ScaleKind::by_row;
    constexpr int kCopies = kWaves == 1 && Kernel::kRuns == 1 && kFewScales ? 4 : 1;
#pragma unroll kCopies
    for (; left > 0; --left) {
      if (!kAhead && !is_full) barrier_wait(ring.is_full(at.stage), at.phase);
      used = at.stage;
      at.next();
      if constexpr (kAhead) {
#pragma unroll
        for (int wave = 0; wave < kWaves; ++wave) scales[wave] = next[wave];
      } else {
        load_scales(used, scales);
      }
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave) {
        const bool last = wave + 1 == kWaves;
        worker.begin(used, wave, runs[0]);
        if (!kAhead) is_full = barrier_over(ring.is_full(at.stage), at.phase);
        if (kAhead && last && left > 1) {
          barrier_wait(ring.is_full(at.stage), at.phase);
          load_scales(at.stage, next);
        }
        worker.template end<0>(used, scales[wave], !last || (kAtEnd && left == 1), runs[0],
                               sums[wave]);
      }
    }
    if (unfinished) {
      if (kAtEnd) release(ring, used, lane);
      leave_sums(plan, slot, thread, sums[0]);
      barrier_arrive(ring.has_left(group));
      continue;
    }
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave) {
      // In their order; sums that stay are in it, and there are no registers for a copy of them.
      float ordered[kSums];
      float(&made)[kSums] = Kernel::kStays ? sums[wave] : ordered;
      if constexpr (!Kernel::kStays) {
#pragma unroll
        for (int i = 0; i < kSums; ++i) ordered[i] = sums[wave][GemmWorker<Kernel>::place(i)];
      }
      if (kAtEnd) {  // the last stage has the scales
        scale_sums(plan, lone, worker.row_scales_of(used, wave),
                   ring.col_scales(used) + worker.tile_col * sizeof(float), made);
        if (wave + 1 == kWaves) release(ring, used, lane);
      }
      FinishAt at_wave = finish;
      at_wave.staged += wave * staged_bytes(Kernel::kGroupCols);
      at_wave.row = first_row + wave * Kernel::kWaveGroups * kMmaRows;
      at_wave.col = first_col;
      bool whole = true;
      if (is_group) whole = at_wave.take_place(plan.groups[note.group], Kernel::kGroupCols);
      if (plan.stores_boxes && whole)
        store_boxes<kWaves>(plan, at_wave, 1 + group, made);
      else
        store_elements(plan, at_wave, 1 + group, made);
    }
  }
  if (plan.stores_boxes && thread == 0) stores_done();
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    gemm_kernel(const __grid_constant__ GemmPlan plan) {
  extern __shared__ unsigned char memory[];
  const SharedAddress start = shared_address(memory), aligned = (start + 1023) & ~1023u;
  unsigned char* const base = memory + (aligned - start);
  constexpr int kTiles = Kernel::kStages * Kernel::kStageBytes, kScales = kTiles + Kernel::kStaged,
                kNotes = kScales + Kernel::kStages * Kernel::kScaleBytes;
  GemmRing<Kernel> ring;
  ring.tiles = aligned;
  ring.scales = aligned + kScales;
  ring.notes = reinterpret_cast<StageNote*>(base + kNotes);
  ring.full = aligned + kNotes + Kernel::kStages * static_cast<int>(sizeof(StageNote));
  ring.empty = ring.full + 8 * Kernel::kStages;
  ring.left = ring.empty + 8 * Kernel::kStages;

  const int thread = static_cast<int>(threadIdx.x);
  const int rank = Kernel::kBlocks > 1 ? static_cast<int>(rank_in_cluster()) : 0;
  const int cluster = static_cast<int>(blockIdx.x) / Kernel::kBlocks;
  if (thread == 0) begin_ring(ring, Kernel::kLones > 0 ? 2 : 1);
  const int group = __shfl_sync(0xFFFFFFFFu, thread / 128, 0);
  ItemWalk walk;
  if (group == Kernel::kGroups) {
    if (thread % 128 == 0) {
      prefetch_map(plan.rows_map);
      prefetch_map(plan.cols_map);
    }
    walk = ItemWalk(plan.schedule, cluster);
  }
  if constexpr (Kernel::kBlocks > 1)
    cluster_sync();
  else
    __syncthreads();

  const bool has_gate = plan.gate.number != nullptr;
  if (has_gate) let_next_kernel_begin();  // of several that follow each other, most end at once
  wait_for_kernels_before();
  if (has_gate && *plan.gate.number != plan.gate.wanted) return;
  if (group == Kernel::kGroups) {
    if constexpr (Kernel::kMovesRegisters) registers_down<Kernel::kDown>();
    bring_all(plan, ring, walk, rank, thread % 128);
    let_next_kernel_begin();
  } else {
    if constexpr (Kernel::kMovesRegisters) registers_up<Kernel::kUp>();
    FinishAt finish;
    finish.row_end = plan.row_count;
    finish.col_end = plan.col_count;
    finish.thread = thread % 128;
    finish.staged = aligned + kTiles + group * (Kernel::kStaged / Kernel::kGroups);
    multiply_tiles(plan, ring, cluster, rank, group, finish);
  }
  // A block must be there while others of its cluster write to it or arrive at its barriers.
  if constexpr (Kernel::kBlocks > 1) cluster_sync();
}

}  // namespace octavo::cuda
