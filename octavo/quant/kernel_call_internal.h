// Conversion of tensors and plans to kernel arguments (Exec, QuantizedMatrix).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "octavo/backend/registry_internal.h"
#include "octavo/exec/place_internal.h"
#include "octavo/quant/quantize.h"
#include "octavo/quant/quantize_plan_internal.h"

namespace octavo {

// All owned memory of a quantization, with its names in messages.
inline void name_parts(const QuantizedTensor& tensor, std::vector<NamedView>& views) {
  const auto add = [&](const Tensor& part, std::string_view name) {
    if (part.owner() != nullptr) views.push_back({&part.view(), name});
  };
  add(tensor.rowwise.codes, "codes");
  add(tensor.rowwise.scales, "scales");
  add(tensor.rowwise.tensor_scale, "the tensor scale");
  add(tensor.columnwise.codes, "columnwise codes");
  add(tensor.columnwise.scales, "columnwise scales");
  add(tensor.columnwise.tensor_scale, "the columnwise tensor scale");
}

// The Exec for these views; the caller's scalars must be on the same device.
inline Exec exec_for(const std::vector<NamedView>& views, const Shape& shape,
                     const QuantizeOptions& options, std::string_view op) {
  const Exec exec = make_exec_on(views, element_count(shape), options, op);
  check_beside(exec, options.counts, alignof(Counts), op, "counts");
  check_beside(exec, options.amax, alignof(float), op, "amax");
  check_beside(exec, options.given_inv_scale, alignof(float), op, "given_inv_scale");
  check_beside(exec, options.given_amax, alignof(float), op, "given_amax");
  check_beside(exec, options.column_weights.data(), alignof(float), op, "column_weights");
  return exec;
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
