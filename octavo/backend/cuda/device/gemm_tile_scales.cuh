// Scales of a tile that a warpgroup reads by itself: one for all columns or rows along K, or those
// that wait for the end.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm_plan.h"

namespace octavo::cuda {

// The one number that a tile has of a plane, for every block of K. Each lane of a warp has that of
// one block, so that 32 blocks are asked for at once, long before their use: numbers may come from
// memory, which takes longer than a stage.
class LoneScales {
 public:
  // Of `blocks` blocks from `k` on.
  __device__ __forceinline__ LoneScales(const ScalePlane& plane, int first_row, int k, int blocks,
                                        int lane)
      : from_(plane.data + min(first_row, plane.rows - 1) / plane.each * plane.row_pitch +
              (k + lane) * plane.pitch),
        pitch_(32 * plane.pitch),
        left_(blocks - lane) {
    load();
    turn();
  }
  __device__ __forceinline__ float take() {
    const float taken = __shfl_sync(0xFFFFFFFFu, now_, used_);
    if (++used_ == 32) turn();
    return taken;
  }

 private:
  __device__ __forceinline__ void load() {
    if (left_ > 0) next_ = __ldg(from_);
  }
  __device__ __forceinline__ void turn() {
    now_ = next_;
    used_ = 0;
    from_ += pitch_;
    left_ -= 32;
    load();
  }

  const float* from_;
  std::int64_t pitch_;
  int left_;
  int used_ = 0;
  float now_ = 0.0F, next_ = 0.0F;
};

// Where scales wait for the end.
struct NoScales {
  __device__ __forceinline__ NoScales(const ScalePlane&, int, int, int, int) {}
  __device__ __forceinline__ float take() { return 1.0F; }
};

// Scales that are the same all along K: one for all rows or one each, and so for columns.
template <int kSums>
__device__ __forceinline__ void scale_sums(const GemmPlan& plan, const float* rows,
                                           const float* cols, float (&sums)[kSums]) {
  const bool lone_row = plan.row_scales.each != 1, lone_col = plan.col_scales.each != 1;
  const float row = lone_row ? __ldg(plan.row_scales.data) : 0.0F,
              col = lone_col ? __ldg(plan.col_scales.data) : 0.0F;
  const float upper = lone_row ? row : rows[0], lower = lone_row ? row : rows[8];
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
    const float left = lone_col ? col : cols[8 * j], right = lone_col ? col : cols[8 * j + 1];
    float* four = &sums[4 * j];
    four[0] *= upper * left;
    four[1] *= upper * right;
    four[2] *= lower * left;
    four[3] *= lower * right;
  }
}

}  // namespace octavo::cuda
