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

#include "octavo/backend/cuda/gemm/gemm_consumer.cuh"
#include "octavo/backend/cuda/gemm/gemm_epilogue.cuh"
#include "octavo/backend/cuda/gemm/gemm_pipeline.cuh"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/gemm/gemm_tma_producer.cuh"
#include "octavo/backend/cuda/hopper/cluster.cuh"
#include "octavo/backend/cuda/hopper/pdl.cuh"
#include "octavo/backend/cuda/hopper/setmaxnreg.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/tma.cuh"

namespace octavo::cuda {

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
  TileScheduler scheduler;
  if (group == Kernel::kGroups) {
    if (thread % 128 == 0) {
      prefetch_tensor_map(plan.rows_tensor_map);
      prefetch_tensor_map(plan.cols_tensor_map);
    }
    scheduler = TileScheduler(plan.schedule, cluster);
  }
  if constexpr (Kernel::kClusterSize > 1)
    cluster_sync();
  else
    __syncthreads();

  const bool has_predicate = plan.predicate.number != nullptr;
  if (has_predicate)
    pdl_launch_dependents();  // of several gated kernels in a row, most exit at once
  pdl_wait();
  if (has_predicate && *plan.predicate.number != plan.predicate.wanted) return;
  if (group == Kernel::kGroups) {
    if constexpr (Kernel::kUsesSetmaxnreg) setmaxnreg_dec<Kernel::kProducerRegisters>();
    producer_warpgroup(plan, pipeline, scheduler, rank, thread % 128);
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
