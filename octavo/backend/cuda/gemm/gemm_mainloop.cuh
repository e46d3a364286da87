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
  static constexpr int kSums = Kernel::kSums, kRowPasses = Kernel::kRowPasses;
  static constexpr bool kAtEnd = kScales == ScaleKind::at_end;
  using Runs = float (&)[Kernel::kRuns][kSums];
  using Sums = float (&)[kRowPasses][kSums];
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

  // Four stages at a time, with the next run of wgmma issued one stage ahead. No run is in flight
  // across loop iterations: the compiler would otherwise serialize every wgmma.
  __device__ __forceinline__ void promote_by_four(PipelineState<Kernel>& at, int& left, int& used,
                                                  Runs runs, Sums sums) const {
    constexpr int kAtOnce = 4;
    for (; left >= kAtOnce; left -= kAtOnce) {
      PipelineState<Kernel> ahead = at;
      mbarrier_wait(pipeline.full_barrier(ahead.stage), ahead.phase);
      issue(ahead.stage, 0, runs[0]);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j, at.next()) {
        const bool last = j + 1 == kAtOnce && left == kAtOnce;
        used = at.stage;
        if (j + 1 < kAtOnce) {
          ahead.next();
          mbarrier_wait(pipeline.full_barrier(ahead.stage), ahead.phase);
          issue(ahead.stage, 0, runs[(j + 1) % 2]);
          promote<1>(at.stage, scales(at.stage, 0), false, runs[j % 2], sums[0]);
        } else {
          promote<0>(at.stage, scales(at.stage, 0), kAtEnd && last, runs[j % 2], sums[0]);
        }
      }
    }
  }

  // One stage at a time. Two warpgroups keep the tensor cores busy only if each issues its next
  // wgmma before the other's completes, so nothing may delay the issue. Hence with several row
  // passes a warpgroup waits for the next full barrier and loads the next scales while its wgmma is
  // in flight.
  __device__ __forceinline__ void promote_one_by_one(PipelineState<Kernel>& at, int left, int& used,
                                                     Runs runs, Sums sums) const {
    constexpr bool kAhead = kRowPasses > 1;
    RunScales now[kRowPasses], next[kRowPasses];
    const auto load_scales = [&](int stage, auto& to) {
#pragma unroll
      for (int pass = 0; pass < kRowPasses; ++pass) to[pass] = scales(stage, pass);
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
        for (int pass = 0; pass < kRowPasses; ++pass) now[pass] = next[pass];
      } else {
        load_scales(used, now);
      }
#pragma unroll
      for (int pass = 0; pass < kRowPasses; ++pass) {
        const bool last = pass + 1 == kRowPasses;
        issue(used, pass, runs[0]);
        if (!kAhead) next_is_full = mbarrier_test_wait(pipeline.full_barrier(at.stage), at.phase);
        if (kAhead && last && left > 1) {
          mbarrier_wait(pipeline.full_barrier(at.stage), at.phase);
          load_scales(at.stage, next);
        }
        promote<0>(used, now[pass], !last || (kAtEnd && left == 1), runs[0], sums[pass]);
      }
    }
  }

  // The main loop: `left` blocks of K of one tile, at least one, into `sums`, which are zero or a
  // partial tile's (`continues`). Returns the last stage, which is still held if it has the scales
  // that are applied at the end.
  __device__ __forceinline__ int multiply_tile(PipelineState<Kernel>& at, int left, bool continues,
                                               Runs runs, Sums sums) const {
    int used = at.stage;
    if constexpr (Kernel::kNoPromotion) {
      used = multiply_on(at, left, continues, sums[0]);
      left = 0;
    }
    if constexpr (Kernel::kRuns == 2) promote_by_four(at, left, used, runs, sums);
    promote_one_by_one(at, left, used, runs, sums);
    return used;
  }
};

}  // namespace octavo::cuda
