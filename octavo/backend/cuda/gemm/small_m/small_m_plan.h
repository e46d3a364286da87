// Kernel arguments of a small M GEMM by weights that are decoded in registers (small_m.cuh).
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_plan.h"

namespace octavo::cuda {

inline constexpr int kSmallMWarpRows = 16;  // of weights, per warp
inline constexpr int kSmallMChunk = 256;    // of K, per warp and step: four times 16 per lane

struct SmallMPlan {
  const unsigned char *x, *codes, *scales;
  std::int64_t x_pitch, code_pitch;
  std::int64_t scale_pitch, scale_stride;  // between scales, down the rows and along K
  int scale_rows;                          // of weights that share a scale
  const float *x_scale, *tensor_scale;  // per-tensor scales of x, and of the weights (may be null)
  int x_rows, weight_rows, depth;
  bool whole;  // K is a multiple of the chunk, whose scales are vector loads
  GemmEpilogue epilogue;
};

inline SmallMPlan small_m_plan_of(const Matrix& x, const float* x_scale, const GemmJob& job) {
  const QuantizedMatrix& q = job.b.quantized;
  return {.x = static_cast<const unsigned char*>(x.data),
          .codes = static_cast<const unsigned char*>(q.codes.data),
          .scales = static_cast<const unsigned char*>(q.scales.data),
          .x_pitch = x.row_pitch,
          .code_pitch = q.codes.row_pitch,
          .scale_pitch = q.scales.row_pitch,
          .scale_stride = q.scales.col_stride,
          .scale_rows = static_cast<int>(tile_extent(q.tile.rows, q.codes.rows)),
          .x_scale = x_scale,
          .tensor_scale = q.tensor_scale,
          .x_rows = static_cast<int>(x.rows),
          .weight_rows = static_cast<int>(q.codes.rows),
          .depth = static_cast<int>(x.cols),
          .whole = x.cols % kSmallMChunk == 0,
          .epilogue = epilogue_of(job)};
}

}  // namespace octavo::cuda
