// Dequantization of one element.
#pragma once

#include <cstdint>

#include "octavo/backend/reference/elements_internal.h"
#include "octavo/scale/tile_scale.h"

namespace octavo::reference {

// The scale of the code at (row, col); NaN poisons.
inline double scale_at(const QuantizedMatrix& from, std::int64_t row, std::int64_t col) {
  const Tile tile{tile_extent(from.tile.rows, from.codes.rows),
                  tile_extent(from.tile.cols, from.codes.cols)};
  const double scale = load_value(from.scales, row / tile.rows, col / tile.cols);
  return from.tensor_scale != nullptr ? scale * static_cast<double>(*from.tensor_scale) : scale;
}

// Exact in f64, whatever the format.
inline double dequantized(const QuantizedMatrix& from, std::int64_t row, std::int64_t col) {
  const double scale = scale_at(from, row, col);
  if (scale != scale) return static_cast<double>(f32_nan());
  const double value = decode(from.codes.format, load_code(from.codes, row, col));
  if (value != value) return value;
  // Inf times zero has a sign that depends on the processor.
  const double product = scale * value;
  return product == product ? product : static_cast<double>(f32_nan());
}

}  // namespace octavo::reference
