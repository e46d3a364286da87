// The kernel of cuda_gemm_fp8.cu: one template whose versions are switches. It covers what its
// versions compare and no more: e4m3 by e4m3 with 1 x 128 scales of A and 128 x 128 scales of B,
// bf16 out, rows a multiple of 64, columns of 256, K of 128.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

#include "bench/ladder/cuda_gemm_fp8_parts.cuh"
#include "bench/ladder/cuda_gemm_fp8_producer.cuh"
#include "octavo/backend/cuda/hopper/cluster.cuh"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/setmaxnreg.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/tma.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda::ladder {

template <Version kIs>
__device__ __forceinline__ void consumer_release(const Pipeline<kIs>& pipeline, int stage,
                                                 int lane) {
  if constexpr (kIs.blocks > 1) {
    if (lane < kIs.blocks) mbarrier_arrive_cluster(pipeline.empty_barrier(stage), lane);
  } else if constexpr (Kernel<kIs>::kLoadsAhead) {
    if (lane == 0) mbarrier_arrive(pipeline.empty_barrier(stage));
  }
}

// Stages 64 x 128 sums as bf16 in the layout of TMA stores.
template <Version kIs>
__device__ __forceinline__ void stage_for_tma_store(SharedAddress staged, int thread,
                                                    const float (&sums)[Kernel<kIs>::kSums]) {
  using K = Kernel<kIs>;
  const int lane = thread % 32, line = thread / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
  const SharedAddress first = staged + line * kRowBytes + ((lane / 16) ^ (lane % 8)) * 16;
#pragma unroll
  for (int j = 0; j < K::kSums / 4; j += 2) {  // two matrices across; 64 columns are a box
    std::uint32_t four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 pair =
          __floats2bfloat162_rn(sums[K::place(4 * j + 2 * i)], sums[K::place(4 * j + 2 * i + 1)]);
      four[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
    }
    stmatrix_x4<false>((first ^ (j % 8 * 16)) + j / 8 * kMmaRows * kRowBytes, four);
  }
}

// Epilogue: row passes `begin` to `end` of a warpgroup, staged in shared memory and stored by TMA.
// kBehind TMA stores of the tile before may stay in flight.
template <Version kIs, int kBehind>
__device__ __forceinline__ void store_passes(
    const Product& of, const Pipeline<kIs>& pipeline, int thread, int group, int row, int col,
    int begin, int end, const float (&sums)[kIs.row_passes][Kernel<kIs>::kSums]) {
  using K = Kernel<kIs>;
  // Not to be computed earlier: it would occupy registers in the main loop.
  asm volatile("" : "+r"(thread));
  const auto staged = [&](int pass) {
    return pipeline.base + K::kStagedAt + (group * kIs.row_passes + pass) * K::kStagedBytes;
  };
  if (thread == 0) tma_store_wait_read<kBehind>();
  named_barrier_sync(1 + group, 128);
#pragma unroll
  for (int pass = begin; pass < end; ++pass)
    stage_for_tma_store<kIs>(staged(pass), thread, sums[pass]);
  fence_proxy_async();
  named_barrier_sync(1 + group, 128);
  if (thread != 0) return;
#pragma unroll
  for (int pass = begin; pass < end; ++pass)
#pragma unroll
    for (int box = 0; box < K::kCols / 64; ++box)
      tma_store_2d(of.out, col + 64 * box, row + pass * kIs.groups * kMmaRows,
                   staged(pass) + box * kMmaRows * kRowBytes);
  tma_store_commit();
}

template <Version kIs>
__device__ __forceinline__ void consumer_warpgroup(const Product& of, const Pipeline<kIs>& pipeline,
                                                   int rank, int group, int thread) {
  using K = Kernel<kIs>;
  const int lane = thread % 32;
  const int scale_at = (group * kMmaRows + thread / 32 * 16 + lane / 4) * 4;
  constexpr int kApart = kIs.groups * kMmaRows;  // rows from pass to pass
  float run[K::kSums], sums[kIs.row_passes][K::kSums];
#pragma unroll
  for (int s = 0; s < K::kSums; ++s) run[s] = 0.0F;
  PipelineState<kIs> at;
  for (Walk<kIs> scheduler(of); !scheduler.is_over(); scheduler.next()) {
    scheduler.find(of, rank);
    if (K::kLoadsAhead && scheduler.row + group * kMmaRows >= of.row_count) {
      // All rows are beyond the edge.
      for (int block = scheduler.work_tile.first; block < scheduler.work_tile.end;
           ++block, at.next()) {
        mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
        consumer_release(pipeline, at.stage, lane);
      }
      if (kIs.stream_k && scheduler.work_tile.is_partial)
        mbarrier_arrive(pipeline.handed_over_barrier(group));
      continue;
    }
    const int slot = slot_of<kIs>(scheduler.cluster, rank, group);
    if (kIs.stream_k && scheduler.work_tile.continues) {
      load_partial_sums(of, slot - slot_of<kIs>(1, 0, 0), thread, 1 + group, sums[0]);
    } else {
#pragma unroll
      for (int pass = 0; pass < kIs.row_passes; ++pass)
#pragma unroll
        for (int s = 0; s < K::kSums; ++s) sums[pass][s] = 0.0F;
    }
    BroadcastScales<kIs.broadcast_scale> broadcast_scale(
        scheduler.col_scales(of), scheduler.work_tile.end - scheduler.work_tile.first, lane);
    // Of the thread's two rows and all columns.
    struct Scales {
      float upper[kIs.row_passes][K::kBroadcastScales], lower[kIs.row_passes][K::kBroadcastScales];
    };
    const auto load_scales = [&](int stage, int pass, Scales& to) {
      const SharedAddress rows = pipeline.row_scales(stage) + scale_at + pass * kApart * 4;
      const float above = load_shared(rows), below = load_shared(rows + 8 * 4);
#pragma unroll
      for (int i = 0; i < K::kBroadcastScales; ++i) {
        float by = 1.0F;
        if constexpr (kIs.broadcast_scale == BroadcastScale::in_pipeline)
          by = load_shared(pipeline.broadcast_scale(stage) + 4 * i);
        else if constexpr (kIs.broadcast_scale != BroadcastScale::multiplied)
          by = broadcast_scale.take();
        to.upper[pass][i] = kIs.broadcast_scale == BroadcastScale::multiplied ? above : above * by;
        to.lower[pass][i] = kIs.broadcast_scale == BroadcastScale::multiplied ? below : below * by;
      }
    };
    const auto load_all = [&](int stage, Scales& to) {
#pragma unroll
      for (int pass = 0; pass < kIs.row_passes; ++pass) load_scales(stage, pass, to);
    };
    Scales scales, next;
    if constexpr (kIs.ahead) {
      mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
      load_all(at.stage, next);
    }
    bool full_barrier = false;
    constexpr int kCopies = kIs.copies;
#pragma unroll kCopies
    for (int block = scheduler.work_tile.first; block < scheduler.work_tile.end; ++block) {
      const PipelineState<kIs> now = at;
      if constexpr (!K::kLoadsAhead) {
        __syncthreads();  // all threads have read it
        if (thread == 0) tma_load_stage(of, pipeline, now.stage, scheduler, block, rank);
      }
      if (!kIs.ahead && !full_barrier) mbarrier_wait(pipeline.full_barrier(now.stage), now.phase);
      at.next();
      if constexpr (kIs.ahead)
        scales = next;
      else if constexpr (kIs.ready)
        load_all(now.stage, scales);
#pragma unroll
      for (int pass = 0; pass < kIs.row_passes; ++pass) {
        const unsigned rows = smem_descriptor_low(pipeline.rows(now.stage) +
                                                  (group * kMmaRows + pass * kApart) * kRowBytes),
                       cols = smem_descriptor_low(pipeline.cols(now.stage));
        wgmma_fence_operand(run);
        wgmma_fence();
#pragma unroll
        for (unsigned step = 0; step < kRowBytes / kMmaBytes; ++step)
          wgmma<Mma::e4m3_e4m3>(run, smem_descriptor_from_low(rows + step * kDescriptorStep),
                                smem_descriptor_from_low(cols + step * kDescriptorStep), step > 0);
        wgmma_commit();
        const bool last = pass + 1 == kIs.row_passes;
        if (K::kLoadsAhead && !kIs.ahead && last)
          full_barrier = mbarrier_test_wait(pipeline.full_barrier(at.stage), at.phase);
        if (kIs.ahead && last && block + 1 < scheduler.work_tile.end) {
          mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
          load_all(at.stage, next);
        }
        if constexpr (!kIs.ready) load_scales(now.stage, pass, scales);
        wgmma_wait<0>();
        wgmma_fence_operand(run);
        if (last) consumer_release(pipeline, now.stage, lane);
        const auto add = [&](int s) {
          const int i = s * 2 / K::kBroadcastCols;
          sums[pass][K::place(s)] =
              __fmaf_rn(run[s], s % 4 < 2 ? scales.upper[pass][i] : scales.lower[pass][i],
                        sums[pass][K::place(s)]);
        };
#pragma unroll
        for (int s = 0; s < K::kSums; ++s)
          if (!kIs.by_row || s % 4 < 2) add(s);
#pragma unroll
        for (int s = 0; s < K::kSums; ++s)
          if (kIs.by_row && s % 4 >= 2) add(s);
        wgmma_fence_operand(sums[pass]);  // before the next run is issued into the same registers
      }
    }
    if (kIs.stream_k && scheduler.work_tile.is_partial) {
      store_partial_sums(of, slot, thread, sums[0]);
      mbarrier_arrive(pipeline.handed_over_barrier(group));
      continue;
    }
    const int row = scheduler.row + group * kMmaRows;
    if constexpr (kIs.together) {
      store_passes<kIs, 0>(of, pipeline, thread, group, row, scheduler.col, 0, kIs.row_passes,
                           sums);
    } else {
#pragma unroll
      for (int pass = 0; pass < kIs.row_passes; ++pass)
        store_passes<kIs, kIs.row_passes - 1>(of, pipeline, thread, group, row, scheduler.col, pass,
                                              pass + 1, sums);
    }
  }
  if (thread == 0) tma_store_wait();
}

__device__ __forceinline__ long long nanoseconds() {
  long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

template <typename K>
__global__ void __launch_bounds__(K::kThreads, 1)
    product_kernel(const __grid_constant__ Product of) {
  constexpr Version kIs = K::kVersion;
  extern __shared__ unsigned char memory[];
  __shared__ long long begin[2];
  const Pipeline<kIs> pipeline{(shared_address(memory) + 1023) & ~1023u};
  const int thread = static_cast<int>(threadIdx.x);
  const int rank = kIs.blocks > 1 ? static_cast<int>(rank_in_cluster()) : 0;
  if (thread == 0) {
    begin[0] = clock64();
    begin[1] = nanoseconds();
    for (int stage = 0; stage < kIs.stages; ++stage) {
      mbarrier_init(pipeline.full_barrier(stage), 1 + K::kScaleWarps);
      mbarrier_init(pipeline.empty_barrier(stage),
                    kIs.groups * 4 * kIs.blocks);  // one arrival per warp
    }
    for (int of_group = 0; of_group < kIs.groups; ++of_group)
      mbarrier_init(pipeline.handed_over_barrier(of_group), 128);
    mbarrier_init_fence();
  }
  const int group = K::kThreads > 128 ? __shfl_sync(0xFFFFFFFFu, thread / 128, 0) : 0;
  if constexpr (kIs.blocks > 1)
    cluster_sync();
  else
    __syncthreads();

  if (K::kLoadsAhead && group == kIs.groups) {
    if constexpr (K::kUsesSetmaxnreg) setmaxnreg_dec<K::kProducerRegisters>();
    const int warp = thread / 32 % 4, lane = thread % 32;
    if (warp == 0 && lane == 0) tma_load_tiles(of, pipeline, rank);
    if constexpr (kIs.broadcast_scale == BroadcastScale::in_pipeline) {
      if (warp == 1) load_broadcast_scales(of, pipeline, rank, lane);
    }
    if constexpr (kIs.broadcast_scale == BroadcastScale::multiplied) {
      if (warp == 1 || warp == 2) load_multiplied_scales(of, pipeline, rank, warp - 1, lane);
    }
    if constexpr (kIs.stream_k) {
      if (warp == 3 && lane == 0) signal_all_partial_sums(of, pipeline, rank);
    }
  } else {
    if constexpr (K::kUsesSetmaxnreg) setmaxnreg_inc<K::kConsumerRegisters>();
    consumer_warpgroup(of, pipeline, rank, group, thread % 128);
    if (thread == 0 && blockIdx.x == 0) {
      of.spent[0] = clock64() - begin[0];
      of.spent[1] = nanoseconds() - begin[1];
    }
  }
  // A block must not exit while cluster peers multicast to it or arrive at its mbarriers.
  if constexpr (kIs.blocks > 1) {
    __syncwarp();
    cluster_sync();
  }
}

}  // namespace octavo::cuda::ladder
