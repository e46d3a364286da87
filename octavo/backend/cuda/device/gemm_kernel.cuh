// Products on the tensor cores of Hopper. A block has warpgroups that multiply, 64 rows each, and
// one that brings: a thread for the copy engine, three warps for scales. Tiles of operands pass
// through a ring of stages in shared memory, 128 bytes of K each.
//
// Sums of FP8 products leave the tensor cores after every stage, because those keep 13 bits of them
// (docs/numerics/gemm.md), and are added up in f32 registers, times their scales where those change
// along K. While one warpgroup adds, others multiply.
//
// Blocks of a cluster have the same rows and neighbouring columns: each fetches its share of the
// rows for all of them.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/device/gemm_finish.cuh"
#include "octavo/backend/cuda/device/gemm_scales.cuh"
#include "octavo/backend/cuda/device/hopper.cuh"
#include "octavo/backend/cuda/device/wgmma.cuh"
#include "octavo/backend/cuda/gemm_plan.h"

namespace octavo::cuda {

template <Mma kMmaIs, GemmShape kShape, ScaleKind kScalesAre>
struct GemmKernel {
  static constexpr Mma kMma = kMmaIs;
  static constexpr ScaleKind kScales = kScalesAre;
  static constexpr int kGroups = kShape.warpgroups, kRows = kGroups * kMmaRows, kCols = kShape.cols,
                       kBlocks = kShape.blocks;
  static constexpr int kThreads = (kGroups + 1) * 128;
  static constexpr int kSums = kCols / 2;
  static constexpr int kKElements = is_fp8(kMma) ? kRowBytes : kRowBytes / 2;

  static constexpr int kRowTile = kRows * kRowBytes, kColTile = kCols * kRowBytes;
  static constexpr int kStageBytes = kRowTile + kColTile;
  static constexpr int kScaleBytes = (kRows + kCols) * 4;
  static constexpr int kStages =
      (227 * 1024 - 1024 - kGroups * kStagedBytes - 512) / (kStageBytes + kScaleBytes);
  static_assert(kStages >= 3);
  static constexpr int kSharedBytes =
      1024 + kStages * (kStageBytes + kScaleBytes) + kGroups * kStagedBytes + 512;

  // Registers: those of a block are 64 K, in steps of 8 a thread.
  static constexpr int kUp = kGroups == 3 ? 152 : 232, kDown = kGroups == 3 ? 56 : 40;
  static constexpr bool kMovesRegisters = kGroups > 1;
};

// A place in the ring, and how often it has been round.
template <int kStages>
struct RingPlace {
  int stage = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

template <typename Kernel>
struct GemmRing {
  SharedAddress tiles, full, empty;
  float* scales;

  __device__ __forceinline__ SharedAddress rows(int stage) const {
    return tiles + stage * Kernel::kStageBytes;
  }
  __device__ __forceinline__ SharedAddress cols(int stage) const {
    return rows(stage) + Kernel::kRowTile;
  }
  __device__ __forceinline__ SharedAddress is_full(int stage) const { return full + 8 * stage; }
  __device__ __forceinline__ SharedAddress is_empty(int stage) const { return empty + 8 * stage; }
  __device__ __forceinline__ float* row_scales(int stage) const {
    return scales + stage * (Kernel::kRows + Kernel::kCols);
  }
  __device__ __forceinline__ float* col_scales(int stage) const {
    return row_scales(stage) + Kernel::kRows;
  }
};

// One thread: operands.
template <typename Kernel>
__device__ __forceinline__ void bring_tiles(const GemmPlan& plan, const GemmRing<Kernel>& ring,
                                            int cluster, int rank) {
  constexpr int kBlocks = Kernel::kBlocks, kShare = Kernel::kRows / kBlocks;
  prefetch_map(plan.rows_map);
  prefetch_map(plan.cols_map);
  RingPlace<Kernel::kStages> at;
  const int items = plan.schedule.items(cluster);
  for (int i = 0; i < items; ++i) {
    const GemmItem item = plan.schedule.item(cluster, i);
    const int row = item.unit_row * Kernel::kRows + rank * kShare,
              col = (item.unit_col * kBlocks + rank) * Kernel::kCols;
    for (int k = item.first; k < item.end; ++k, at.next()) {
      barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
      const SharedAddress full = ring.is_full(at.stage);
      barrier_expect(full, Kernel::kStageBytes);
      const SharedAddress rows = ring.rows(at.stage) + rank * kShare * kRowBytes;
      if constexpr (kBlocks > 1)
        copy_box_to(rows, plan.rows_map, k * Kernel::kKElements, row, full, (1 << kBlocks) - 1);
      else
        copy_box(rows, plan.rows_map, k * Kernel::kKElements, row, full);
      copy_box(ring.cols(at.stage), plan.cols_map, k * Kernel::kKElements, col, full);
    }
  }
}

// Three warps, a stage each in turn: scales. They are asked for before their stage is free.
template <typename Kernel>
__device__ __forceinline__ void bring_scales(const GemmPlan& plan, const GemmRing<Kernel>& ring,
                                             int cluster, int rank, int warp, int lane) {
  constexpr ScaleKind kScales = Kernel::kScales;
  constexpr bool kOneRow = kScales == ScaleKind::by_column, kOneCol = kScales == ScaleKind::by_row;
  RingPlace<Kernel::kStages> at;
  const int items = plan.schedule.items(cluster);
  int turn = 0;
  for (int i = 0; i < items; ++i) {
    const GemmItem item = plan.schedule.item(cluster, i);
    const int row = item.unit_row * Kernel::kRows,
              col = (item.unit_col * Kernel::kBlocks + rank) * Kernel::kCols;
    for (int k = item.first; k < item.end; ++k, at.next()) {
      const bool mine = turn == warp;
      turn = turn == 2 ? 0 : turn + 1;
      if (!mine) continue;
      const bool needed = kScales != ScaleKind::at_end || k + 1 == item.end;
      ScaleStrip<kOneRow ? 1 : Kernel::kRows> rows;
      ScaleStrip<kOneCol ? 1 : Kernel::kCols> cols;
      if (needed) {
        rows.load(plan.row_scales, row, plan.row_count, k, kOneRow ? 0 : lane);
        cols.load(plan.col_scales, col, plan.col_count, k, kOneCol ? 0 : lane);
      }
      barrier_wait(ring.is_empty(at.stage), at.phase ^ 1);
      if (needed) {
        rows.store(ring.row_scales(at.stage), lane);
        cols.store(ring.col_scales(at.stage), lane);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(ring.is_full(at.stage));
    }
  }
}

template <typename Kernel>
__device__ __forceinline__ void release(const GemmRing<Kernel>& ring, int stage, int lane) {
  if constexpr (Kernel::kBlocks == 1) {
    if (lane == 0) barrier_arrive(ring.is_empty(stage));
  } else {
    if (lane < Kernel::kBlocks) barrier_arrive_at(ring.is_empty(stage), lane);
  }
}

// Sums that one cluster leaves for the next, in the order of threads.
template <int kSums>
__device__ __forceinline__ void leave_sums(const GemmPlan& plan, int slot, int thread, int barrier,
                                           const float (&sums)[kSums]) {
  float4* to = reinterpret_cast<float4*>(plan.partial) + static_cast<std::int64_t>(slot) * 32 * kSums;
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i)
    __stcg(to + i * 128 + thread,
           make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
  __threadfence();
  named_sync(barrier, 128);
  if (thread == 0)
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(plan.ready + slot), "l"(plan.ticket)
                 : "memory");
}

template <int kSums>
__device__ __forceinline__ void take_sums(const GemmPlan& plan, int slot, int thread, int barrier,
                                          float (&sums)[kSums]) {
  if (thread == 0) {
    unsigned long long seen;
    do {
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(seen) : "l"(plan.ready + slot) : "memory");
    } while (seen != plan.ticket);
    plan.ready[slot] = 0;  // a graph has the same ticket every time
  }
  named_sync(barrier, 128);
  const float4* from =
      reinterpret_cast<const float4*>(plan.partial) + static_cast<std::int64_t>(slot) * 32 * kSums;
#pragma unroll
  for (int i = 0; i < kSums / 4; ++i) {
    const float4 four = __ldcg(from + i * 128 + thread);
    sums[4 * i] = four.x;
    sums[4 * i + 1] = four.y;
    sums[4 * i + 2] = four.z;
    sums[4 * i + 3] = four.w;
  }
}

template <typename Kernel>
__device__ __forceinline__ void multiply_tiles(const GemmPlan& plan, const GemmRing<Kernel>& ring,
                                               int cluster, int rank, int group, FinishAt finish) {
  constexpr ScaleKind kScales = Kernel::kScales;
  constexpr int kSums = Kernel::kSums;
  const int thread = finish.thread, lane = thread % 32;
  const int tile_row = group * kMmaRows + thread / 32 * 16 + lane / 4, tile_col = lane % 4 * 2;
  const int slot_of = Kernel::kBlocks * Kernel::kGroups;
  RingPlace<Kernel::kStages> at;
  float run[kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) run[i] = 0.0F;

  const int items = plan.schedule.items(cluster);
  for (int i = 0; i < items; ++i) {
    const GemmItem item = plan.schedule.item(cluster, i);
    float sums[kSums];
    if (item.goes_on) {
      take_sums(plan, (cluster - 1) * slot_of + rank * Kernel::kGroups + group, thread,
                finish.barrier, sums);
    } else {
#pragma unroll
      for (int s = 0; s < kSums; ++s) sums[s] = 0.0F;
    }
    for (int k = item.first; k < item.end; ++k, at.next()) {
      barrier_wait(ring.is_full(at.stage), at.phase);
      const std::uint64_t rows = operand_at(ring.rows(at.stage) + group * kMmaRows * kRowBytes),
                          cols = operand_at(ring.cols(at.stage));
      pin(run);
      mma_begin();
#pragma unroll
      for (int step = 0; step < kRowBytes / kMmaBytes; ++step)
        multiply<Kernel::kMma>(run, rows + step * kOperandStep, cols + step * kOperandStep,
                               step > 0);
      mma_commit();
      const float* row_scales = ring.row_scales(at.stage);
      const float* col_scales = ring.col_scales(at.stage);
      float upper = 1.0F, lower = 1.0F;
      if constexpr (kScales == ScaleKind::by_row) {
        const float col = col_scales[0];
        upper = row_scales[tile_row] * col;
        lower = row_scales[tile_row + 8] * col;
      } else if constexpr (kScales == ScaleKind::by_column) {
        upper = lower = row_scales[0];
      } else if constexpr (kScales == ScaleKind::by_element) {
        upper = row_scales[tile_row];
        lower = row_scales[tile_row + 8];
      }
      mma_wait();
      pin(run);
      const bool last = k + 1 == item.end;
      if constexpr (kScales == ScaleKind::by_row) release(ring, at.stage, lane);
      if constexpr (kScales == ScaleKind::at_end) {
        if (!last) release(ring, at.stage, lane);
#pragma unroll
        for (int s = 0; s < kSums; ++s) sums[s] += run[s];
        if (last && !item.unfinished) {
          upper = row_scales[tile_row];
          lower = row_scales[tile_row + 8];
#pragma unroll
          for (int j = 0; j < kSums / 4; ++j) {
            const float left = col_scales[8 * j + tile_col], right = col_scales[8 * j + tile_col + 1];
            sums[4 * j] *= upper * left;
            sums[4 * j + 1] *= upper * right;
            sums[4 * j + 2] *= lower * left;
            sums[4 * j + 3] *= lower * right;
          }
        }
        if (last) release(ring, at.stage, lane);
      } else if constexpr (kScales == ScaleKind::by_row) {
#pragma unroll
        for (int s = 0; s < kSums; ++s)
          sums[s] = __fmaf_rn(run[s], s % 4 < 2 ? upper : lower, sums[s]);
      } else {
#pragma unroll
        for (int j = 0; j < kSums / 4; ++j) {
          float left, right;  // volatile: else all are loaded at once, into registers there are not
          asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                       : "=f"(left), "=f"(right)
                       : "r"(shared_address(col_scales + 8 * j + tile_col)));
          sums[4 * j] = __fmaf_rn(run[4 * j], upper * left, sums[4 * j]);
          sums[4 * j + 1] = __fmaf_rn(run[4 * j + 1], upper * right, sums[4 * j + 1]);
          sums[4 * j + 2] = __fmaf_rn(run[4 * j + 2], lower * left, sums[4 * j + 2]);
          sums[4 * j + 3] = __fmaf_rn(run[4 * j + 3], lower * right, sums[4 * j + 3]);
        }
        release(ring, at.stage, lane);
      }
    }
    if (item.unfinished) {
      leave_sums(plan, cluster * slot_of + rank * Kernel::kGroups + group, thread, finish.barrier,
                 sums);
      continue;
    }
    finish.row = item.unit_row * Kernel::kRows + group * kMmaRows;
    finish.col = (item.unit_col * Kernel::kBlocks + rank) * Kernel::kCols;
    if (!plan.stores_boxes)
      store_elements(plan, finish, sums);
    else if (plan.turned)
      store_boxes<true>(plan, finish, sums);
    else
      store_boxes<false>(plan, finish, sums);
  }
  if (thread == 0) stores_done();
}

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    gemm_kernel(const __grid_constant__ GemmPlan plan) {
  extern __shared__ unsigned char memory[];
  const SharedAddress start = shared_address(memory), aligned = (start + 1023) & ~1023u;
  unsigned char* const base = memory + (aligned - start);
  constexpr int kTiles = Kernel::kStages * Kernel::kStageBytes,
                kStaged = Kernel::kGroups * kStagedBytes;
  GemmRing<Kernel> ring;
  ring.tiles = aligned;
  ring.scales = reinterpret_cast<float*>(base + kTiles + kStaged);
  ring.full = aligned + kTiles + kStaged + Kernel::kStages * Kernel::kScaleBytes;
  ring.empty = ring.full + 8 * Kernel::kStages;

  const int thread = static_cast<int>(threadIdx.x);
  const int rank = Kernel::kBlocks > 1 ? static_cast<int>(rank_in_cluster()) : 0;
  const int cluster = static_cast<int>(blockIdx.x) / Kernel::kBlocks;
  if (thread == 0) {
    for (int stage = 0; stage < Kernel::kStages; ++stage) {
      barrier_init(ring.is_full(stage), 2);
      barrier_init(ring.is_empty(stage), Kernel::kGroups * 4 * Kernel::kBlocks);
    }
    barriers_ready();
  }
  if constexpr (Kernel::kBlocks > 1)
    cluster_sync();
  else
    __syncthreads();

  const int group = __shfl_sync(0xFFFFFFFFu, thread / 128, 0);
  if (group == Kernel::kGroups) {
    if constexpr (Kernel::kMovesRegisters) registers_down<Kernel::kDown>();
    const int warp = thread / 32 % 4, lane = thread % 32;
    if (warp == 0) {
      if (lane == 0) bring_tiles(plan, ring, cluster, rank);
    } else {
      bring_scales(plan, ring, cluster, rank, warp - 1, lane);
    }
  } else {
    if constexpr (Kernel::kMovesRegisters) registers_up<Kernel::kUp>();
    FinishAt finish;
    finish.thread = thread % 128;
    finish.barrier = 1 + group;
    finish.staged = aligned + kTiles + group * kStagedBytes;
    finish.staged_bytes = base + kTiles + group * kStagedBytes;
    multiply_tiles(plan, ring, cluster, rank, group, finish);
  }
  // A block must be there while others of its cluster write to it or arrive at its barriers.
  if constexpr (Kernel::kBlocks > 1) cluster_sync();
}

}  // namespace octavo::cuda
