// Scales of a tile: broadcast block scales along K, which all columns or rows of a warpgroup share,
// and scales that the epilogue applies.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"

namespace octavo::cuda {

// Broadcast block scales: the one scale that all rows of a warpgroup share, for every K block. Each
// lane of a warp holds the scale of one K block, so 32 K blocks are loaded at once, long before
// their use: a load from global memory takes longer than a stage.
class BroadcastScales {
 public:
  // Starts at K block `k`, for `blocks` K blocks.
  __device__ __forceinline__ void begin(const ScalePlane& plane, int first_row, int k, int blocks,
                                        int lane) {
    from_ = plane.data + min(first_row, plane.rows - 1) / plane.each * plane.row_pitch +
            (k + lane) * plane.pitch;
    pitch_ = 32 * plane.pitch;
    left_ = blocks - lane;
    load();
    advance();
  }
  __device__ __forceinline__ float take() {
    const float taken = __shfl_sync(0xFFFFFFFFu, now_, used_);
    if (++used_ == 32) advance();
    return taken;
  }

 private:
  __device__ __forceinline__ void load() {
    if (left_ > 0) next_ = __ldg(from_);
  }
  __device__ __forceinline__ void advance() {
    now_ = next_;
    used_ = 0;
    from_ += pitch_;
    left_ -= 32;
    load();
  }

  const float* from_ = nullptr;
  std::int64_t pitch_ = 0;
  int left_ = 0, used_ = 0;
  float now_ = 0.0F, next_ = 0.0F;
};

// Scales that are constant along K: the product of both operands' per-tensor scales.
__device__ __forceinline__ float per_tensor_scale(const GemmPlan& plan) {
  return (plan.row_scales.each != 1 ? __ldg(plan.row_scales.data) : 1.0F) *
         (plan.col_scales.each != 1 ? __ldg(plan.col_scales.data) : 1.0F);
}

// Multiplies sums by scales that are constant along K: `tensor_scale`, and per-row or per-column
// scales at the shared-memory addresses `rows` and `cols`, which are those of the thread's first
// row and column. Three warps of a scheduler are in the epilogue at once and none multiplies, so
// every instruction counts.
template <int kSums>
__device__ __forceinline__ void scale_sums(const GemmPlan& plan, float tensor_scale,
                                           SharedAddress rows, SharedAddress cols,
                                           float (&sums)[kSums]) {
  float upper = tensor_scale, lower = tensor_scale;
  if (plan.row_scales.each == 1) {
    upper *= load_shared(rows);
    lower *= load_shared(rows + 8 * sizeof(float));
  }
  if (plan.col_scales.each != 1) {
#pragma unroll
    for (int s = 0; s < kSums; ++s) sums[s] *= s % 4 < 2 ? upper : lower;
    wgmma_fence_operand(sums);  // else both paths get a common end, with a register for every scale
    return;
  }
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
    const float2 col = load_shared_pair(cols + 8 * j * sizeof(float));
    float* four = &sums[4 * j];
    four[0] *= upper * col.x;
    four[1] *= upper * col.y;
    four[2] *= lower * col.x;
    four[3] *= lower * col.y;
  }
}

}  // namespace octavo::cuda
