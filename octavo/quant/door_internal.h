// From tensors and plans to what crosses the kernel door.
#pragma once

#include <cstddef>

#include "octavo/backend/registry.h"
#include "octavo/quant/plan_internal.h"
#include "octavo/quant/quantize.h"

namespace octavo {

inline Exec exec_for(const Shape& shape, const QuantizeOptions& options, std::string_view op) {
  return make_exec(element_count(shape), options.threads, options.log, op);
}

template <typename Entry>
Entry entry_of(const QuantizeOptions& options, Entry Kernels::*entry, std::string_view what) {
  return offered(options.backend, entry, options.log, what);
}

inline std::byte* moved(const View& view, std::int64_t offset) {
  return static_cast<std::byte*>(view.data) + offset;
}

inline Matrix matrix_of(const View& view, std::int64_t offset, std::int64_t rows, std::int64_t cols,
                        std::int64_t row_pitch, std::int64_t col_stride) {
  return {.data = moved(view, offset),
          .dtype = view.dtype,
          .format = view.format,
          .packed = view.packed,
          .rows = rows,
          .cols = cols,
          .row_pitch = row_pitch,
          .col_stride = col_stride};
}

inline float* scalar_of(const Tensor& tensor) {
  return tensor.owner() != nullptr ? static_cast<float*>(tensor.view().data) : nullptr;
}

inline QuantizedMatrix quantized_matrix(const MatrixPlan& plan, const QuantizedCopy& copy,
                                        std::int64_t code_offset, std::int64_t scale_offset) {
  const View &codes = copy.codes.view(), &scales = copy.scales.view();
  const std::int64_t grid_rows = tile_count(plan.tile.rows, plan.row.size),
                     grid_cols = tile_count(plan.tile.cols, plan.col.size);
  return {.codes = matrix_of(codes, code_offset, plan.row.size, plan.col.size, plan.row.code_stride,
                             plan.col.code_stride),
          .scales = matrix_of(scales, scale_offset, grid_rows, grid_cols, plan.row.scale_stride,
                              plan.col.scale_stride),
          .tile = plan.tile,
          .tensor_scale = scalar_of(copy.tensor_scale)};
}

// The columnwise copy as a whole: dense matrices.
inline QuantizedMatrix transposed_matrix(const QuantizedCopy& copy, const Tile& tile) {
  const View &codes = copy.codes.view(), &scales = copy.scales.view();
  const Shape& shape = codes.shape;
  const bool per_tensor = scales.shape.rank() == 0;
  return {.codes = matrix_of(codes, 0, shape[0], shape[1], codes.strides[0], codes.strides[1]),
          .scales =
              matrix_of(scales, 0, tile_count(tile.rows, shape[0]), tile_count(tile.cols, shape[1]),
                        per_tensor ? 0 : scales.strides[0], per_tensor ? 0 : scales.strides[1]),
          .tile = tile,
          .tensor_scale = scalar_of(copy.tensor_scale)};
}

}  // namespace octavo
