// The producer warpgroup of the kernel of cuda_gemm_fp8.cu: TMA loads of operands, scales of rows
// and the broadcast scale of B, in each of its versions.
#pragma once

#include <cstdint>

#include "bench/ladder/cuda_gemm_fp8_parts.cuh"
#include "octavo/backend/cuda/hopper/cluster.cuh"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/tma.cuh"

namespace octavo::cuda::ladder {

// One thread issues TMA loads of operands and of the scales of rows. Of an operand that a cluster
// shares, each block multicasts its slice.
template <Version kIs>
__device__ __forceinline__ void tma_load_stage(const Product& of, const Pipeline<kIs>& pipeline,
                                               int stage, const Walk<kIs>& tile, int block,
                                               int rank) {
  using K = Kernel<kIs>;
  constexpr int kMulticastMask = (1 << kIs.blocks) - 1;
  const SharedAddress full = pipeline.full_barrier(stage);
  constexpr bool kScales = kIs.broadcast_scale != BroadcastScale::multiplied;
  mbarrier_arrive_expect_tx(full, K::kStageBytes + (kScales ? K::kScaleBytes : 0));
  const auto tma_load = [&](SharedAddress to, const CUtensorMap& map, int first, auto share) {
    if constexpr (share() > 0)
      tma_load_2d_multicast(to + rank * share() * kRowBytes, map, block * kRowBytes,
                            first + rank * share(), full, kMulticastMask);
    else
      tma_load_2d(to, map, block * kRowBytes, first, full);
  };
  constexpr bool kMulticasts = kIs.blocks > 1;
  constexpr int kRowSlice = kMulticasts && K::kMulticastsRows ? K::kRows / kIs.blocks : 0,
                kColSlice = kMulticasts && !K::kMulticastsRows ? K::kCols / kIs.blocks : 0;
  tma_load(pipeline.rows(stage), of.rows, tile.row, std::integral_constant<int, kRowSlice>{});
  tma_load(pipeline.cols(stage), of.cols, tile.col, std::integral_constant<int, kColSlice>{});
  if constexpr (kScales)
    tma_load_1d(pipeline.row_scales(stage), of.row_scales + block * of.row_pitch + tile.row,
                K::kScaleBytes, full);
}

template <Version kIs>
__device__ __forceinline__ void tma_load_tiles(const Product& of, const Pipeline<kIs>& pipeline,
                                               int rank) {
  PipelineState<kIs> at;
  for (Walk<kIs> scheduler(of); !scheduler.is_over(); scheduler.next()) {
    scheduler.find(of, rank);
    for (int block = scheduler.work_tile.first; block < scheduler.work_tile.end;
         ++block, at.next()) {
      mbarrier_wait(pipeline.empty_barrier(at.stage), at.phase ^ 1);
      tma_load_stage(of, pipeline, at.stage, scheduler, block, rank);
    }
  }
}

// A producer warp: the broadcast scale of B.
template <Version kIs>
__device__ __forceinline__ void load_broadcast_scales(const Product& of,
                                                      const Pipeline<kIs>& pipeline, int rank,
                                                      int lane) {
  PipelineState<kIs> at;
  for (Walk<kIs> scheduler(of); !scheduler.is_over(); scheduler.next()) {
    scheduler.find(of, rank);
    using K = Kernel<kIs>;
    const auto broadcast_scale_of = [&](int i) {
      return BroadcastScales<BroadcastScale::shuffled>(
          scheduler.col_scales(of, i * K::kBroadcastCols),
          scheduler.work_tile.end - scheduler.work_tile.first, lane);
    };
    BroadcastScales<BroadcastScale::shuffled> broadcast_scales[] = {
        broadcast_scale_of(0), broadcast_scale_of(1), broadcast_scale_of(2)};
    for (int block = scheduler.work_tile.first; block < scheduler.work_tile.end;
         ++block, at.next()) {
      float scales[K::kBroadcastScales];
#pragma unroll
      for (int i = 0; i < K::kBroadcastScales; ++i) scales[i] = broadcast_scales[i].take();
      mbarrier_wait(pipeline.empty_barrier(at.stage), at.phase ^ 1);
      if (lane != 0) continue;
#pragma unroll
      for (int i = 0; i < K::kBroadcastScales; ++i)
        store_shared(pipeline.broadcast_scale(at.stage) + 4 * i, scales[i]);
      mbarrier_arrive(pipeline.full_barrier(at.stage));
    }
  }
}

// Two producer warps: the scales of rows, four per lane, times that of B. Their loads are two
// blocks ahead.
template <Version kIs>
__device__ __forceinline__ void load_multiplied_scales(const Product& of,
                                                       const Pipeline<kIs>& pipeline, int rank,
                                                       int which, int lane) {
  PipelineState<kIs> at;
  const int first = (which * 32 + lane) * 4;
  const bool is_one = first < Kernel<kIs>::kRows;
  for (Walk<kIs> scheduler(of); !scheduler.is_over(); scheduler.next()) {
    scheduler.find(of, rank);
    BroadcastScales<BroadcastScale::shuffled> broadcast_scale(
        scheduler.col_scales(of), scheduler.work_tile.end - scheduler.work_tile.first, lane);
    const auto load = [&](int block) {
      return is_one && block < scheduler.work_tile.end
                 ? __ldg(reinterpret_cast<const float4*>(of.row_scales + block * of.row_pitch +
                                                         scheduler.row + first))
                 : float4{};
    };
    float4 now = load(scheduler.work_tile.first), next = load(scheduler.work_tile.first + 1);
    for (int block = scheduler.work_tile.first; block < scheduler.work_tile.end;
         ++block, at.next()) {
      const float by = broadcast_scale.take();
      const float4 after = load(block + 2);
      mbarrier_wait(pipeline.empty_barrier(at.stage), at.phase ^ 1);
      if (is_one)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(
                         pipeline.row_scales(at.stage) + first * 4),
                     "f"(now.x * by), "f"(now.y * by), "f"(now.z * by), "f"(now.w * by)
                     : "memory");
      __syncwarp();
      if (lane == 0) mbarrier_arrive(pipeline.full_barrier(at.stage));
      now = next;
      next = after;
    }
  }
}

// One thread signals partial sums.
template <Version kIs>
__device__ __forceinline__ void signal_all_partial_sums(const Product& of,
                                                        const Pipeline<kIs>& pipeline, int rank) {
  const int cluster = static_cast<int>(blockIdx.x) / kIs.blocks;
  if (!of.schedule.hands_over_sums(cluster)) return;
  for (int group = 0; group < kIs.groups; ++group)
    signal_partial_sums(of, slot_of<kIs>(cluster, rank, group),
                        pipeline.handed_over_barrier(group));
}

}  // namespace octavo::cuda::ladder
