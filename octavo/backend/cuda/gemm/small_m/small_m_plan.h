// A few rows of bf16 by weights that are decoded in registers, as the kernels of
// device/few_rows.cuh take it.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_plan.h"

namespace octavo::cuda {

inline constexpr int kSmallMWarpRows = 16;  // of weights, of a warp
inline constexpr int kSmallMChunk = 256;    // of K, of a warp at a time: a lane has four times 16

struct SmallMPlan {
  const unsigned char *x, *codes, *scales;
  std::int64_t x_pitch, code_pitch;
  std::int64_t scale_pitch, scale_stride;  // from scale to scale, down and along K
  int scale_rows;                          // of weights, that share a scale
  const float *x_scale, *tensor_scale;  // of all of x, and of all weights; the latter may be null
  int x_rows, weight_rows, depth;
  bool whole;  // K is chunks, and scales of one can be read at once
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
