// Main loop steps of a consumer warpgroup: issue wgmma on a pipeline stage, wait for it, and
// promote its sums to FP32 accumulators.
#pragma once

#include "octavo/backend/cuda/gemm/gemm_pipeline.cuh"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda {

// Makes a warp-uniform value opaque, so that the compiler does not recompute it in every stage.
__device__ __forceinline__ unsigned warp_uniform(unsigned number) {
  return __shfl_sync(0xFFFFFFFFu, number, 0);
}

template <typename Kernel>
struct GemmMainloop {
  static constexpr ScaleKind kScales = Kernel::kScales;
  static constexpr int kSums = Kernel::kSums;
  const GemmPlan& plan;
  const GemmPipeline<Kernel>& pipeline;
  int lane;
  int row_group, col_group;                 // of the warpgroup's first row pass, in the tile
  int tile_row, tile_col;                   // of the thread's first accumulator
  unsigned row_descriptor, col_descriptor;  // low words, for stage 0

  // Issues the wgmmas of one stage. `run` is accumulated into if `more`, else overwritten.
  __device__ __forceinline__ void multiply_stage(int stage, int pass, bool more,
                                                 float (&run)[kSums]) const {
    constexpr unsigned kStage = Kernel::kStageBytes / 16,
                       kPass = Kernel::kPassGroups * kMmaRows * kRowBytes / 16;
    const unsigned rows = row_descriptor + stage * kStage + pass * kPass,
                   cols = col_descriptor + stage * kStage;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kRowBytes / kMmaBytes; ++step)
      wgmma<Kernel::kMma>(run, smem_descriptor_from_low(rows + step * kDescriptorStep),
                          smem_descriptor_from_low(cols + step * kDescriptorStep),
                          more || step > 0);
    wgmma_commit();
  }

  __device__ __forceinline__ void issue(int stage, int pass, float (&run)[kSums]) const {
    wgmma_fence_operand(run);
    multiply_stage(stage, pass, false, run);
  }

  // Main loop without promotion: `count` stages, at least one, accumulate in wgmma's own registers,
  // each issued before the one before completes. The first stage is full. Releases all stages but
  // the last, which it returns.
  __device__ __forceinline__ int multiply_on(PipelineState<Kernel>& at, int count, bool more,
                                             float (&sums)[kSums]) const {
    wgmma_fence_operand(sums);
    multiply_stage(at.stage, 0, more, sums);
    int used = at.stage;
    at.next();
    for (; count > 1; --count, at.next()) {
      mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
      multiply_stage(at.stage, 0, true, sums);
      wgmma_wait<1>();
      consumer_release(pipeline, used, lane);
      used = at.stage;
    }
    wgmma_wait<0>();
    wgmma_fence_operand(sums);
    return used;
  }

  // Shared-memory address of the scales of the thread's rows in a row pass.
  __device__ __forceinline__ SharedAddress row_scales_of(int stage, int pass) const {
    constexpr int kApart = Kernel::kPassGroups * kMmaRows;
    return pipeline.row_scales(stage) +
           (tile_row + pass * kApart) * static_cast<int>(sizeof(float));
  }

  // Index among the sums of element s of a run. Neighbours are exchanged: the register file has
  // banks of even and of odd registers, so an FFMA reads its run from one bank and its sum from the
  // other, which the tensor cores leave free more often.
  static constexpr int place(int s) { return Kernel::kNoPromotion ? s : s ^ 1; }

  static __device__ __forceinline__ void add(float (&sums)[kSums], const float (&run)[kSums], int s,
                                             float scale) {
    sums[place(s)] = __fmaf_rn(run[s], scale, sums[place(s)]);
  }

  // Scales of a run for the thread's two rows. Loaded before wgmma is issued, because instructions
  // between wgmmas delay them.
  struct RunScales {
    float upper = 1.0F, lower = 1.0F;
  };
  __device__ __forceinline__ RunScales scales(int stage, int pass) const {
    RunScales made;
    if constexpr (kScales == ScaleKind::by_row || kScales == ScaleKind::by_element) {
      const SharedAddress rows = row_scales_of(stage, pass);
      made.upper = load_shared(rows);
      made.lower = load_shared(rows + 8 * sizeof(float));
    }
    if constexpr (Kernel::kBroadcastScales > 0) {
      const int which =
          kScales == ScaleKind::by_row ? col_group : row_group + pass * Kernel::kPassGroups;
      const float broadcast = load_shared(pipeline.broadcast_scale(stage, which));
      made.upper *= broadcast;
      made.lower *= broadcast;
    }
    return made;
  }

  // Promotion: waits for a run, adds it to the FP32 accumulators (times scales that change along
  // K), and releases its stage unless `keeps`. kBehind runs that were issued later may stay in
  // flight.
  template <int kBehind>
  __device__ __forceinline__ void promote(int stage, RunScales scales, bool keeps,
                                          float (&run)[kSums], float (&sums)[kSums]) const {
    const SharedAddress col_scales = pipeline.col_scales(stage) + tile_col * sizeof(float);
    wgmma_wait<kBehind>();
    wgmma_fence_operand(run);
    const float upper = scales.upper, lower = scales.lower;
    constexpr bool kReadsOn = kScales == ScaleKind::by_column || kScales == ScaleKind::by_element;
    if (!kReadsOn && !keeps) consumer_release(pipeline, stage, lane);
    if constexpr (kScales == ScaleKind::at_end) {
#pragma unroll
      for (int s = 0; s < kSums; ++s) sums[place(s)] += run[s];
    } else if constexpr (kScales == ScaleKind::by_row) {
      // One row after the other: an FFMA reads one register less if it has the same scale as the
      // FFMA before it.
#pragma unroll
      for (int s = 0; s < kSums; ++s)
        if (s % 4 < 2) add(sums, run, s, upper);
#pragma unroll
      for (int s = 0; s < kSums; ++s)
        if (s % 4 >= 2) add(sums, run, s, lower);
    } else {
#pragma unroll
      for (int j = 0; j < kSums / 4; ++j) {
        const float2 col = load_shared_pair(col_scales + 8 * j * sizeof(float));
        add(sums, run, 4 * j, upper * col.x);
        add(sums, run, 4 * j + 1, upper * col.y);
        add(sums, run, 4 * j + 2, lower * col.x);
        add(sums, run, 4 * j + 3, lower * col.y);
      }
    }
    if (kReadsOn && !keeps) consumer_release(pipeline, stage, lane);
    wgmma_fence_operand(sums);  // before the next run is issued into the same registers
  }
};

}  // namespace octavo::cuda
