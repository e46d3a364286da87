// Scales in row-major or column-major order. quantize writes either directly, so a GEMM with tiles
// of 1 x 128 needs no transpose of the scales.
#pragma once

#include "octavo/base/macros.h"
#include "octavo/quant/scaling.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// The strides of a grid of scales of so many bytes each, without gaps.
[[nodiscard]] OCTAVO_API Shape scale_strides(const Shape& grid, int bytes, ScaleOrder order);

// Does a grid lie in this order, without gaps? Both are true where it has one row or column.
[[nodiscard]] OCTAVO_API bool is_ordered(const View& scales, ScaleOrder order);

// The same grid in this order: itself where it is so already, else a copy. Scales on the CPU only.
[[nodiscard]] OCTAVO_API Tensor in_order(const Tensor& scales, ScaleOrder order);

}  // namespace octavo
