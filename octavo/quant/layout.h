// Scale layouts of other kernels (128x4 swizzle of cuBLASLt and Blackwell, transposed) and back:
// docs/numerics/layout.md has the byte offsets. Both directions are lossless; padding beyond the
// grid is zero.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// A grid of R x C scales, or a stack of them ([..., R, C]), each laid out separately, one after
// another.
enum class ScaleLayout : std::uint8_t {
  // [..., R, C]: what quantize makes.
  row_major,
  // [..., R up to a multiple of 128, C up to a multiple of 4], for scales of one byte: tiles of
  // 128 x 4 stored as 32 x 16, which Blackwell's tensor cores read. cuBLASLt and torch
  // (SWIZZLE_32_4_4) take it for 1 x 32 and 1 x 16 tiles.
  swizzled_128x4,
  // [..., C, R]: neighbouring rows are neighbours, which is what GEMMs with 1 x 128 tiles load.
  transposed,
};

// The scales of a row-major grid, in other order. The scales may have any strides. `pad`: the
// dimension that is contiguous in the result is filled up to a multiple of this many scales; 0 is
// what the layout itself asks for, 4 where transposed (16 bytes of f32: DeepGEMM and Transformer
// Engine; torch wants 1) and 1 where row-major (torch wants 4 for 128 x 128 tiles). The swizzle has
// its own and takes none.
[[nodiscard]] OCTAVO_API Tensor to_layout(const Tensor& scales, ScaleLayout layout, int pad = 0);

// Back to row-major: `grid` is the shape it had. The padding follows from the shape of `scales`;
// swizzled ones may have any shape of the right size, because other libraries pass them flat.
[[nodiscard]] OCTAVO_API Tensor from_layout(const Tensor& scales, ScaleLayout layout,
                                            const Shape& grid);

// The shape that to_layout gives.
[[nodiscard]] OCTAVO_API Shape layout_shape(const Shape& grid, ScaleLayout layout, int pad = 0);

// Transposed scales seen as the grid they came from, [..., R, C] with R contiguous: the argument of
// torch's scaled_mm. Shares memory.
[[nodiscard]] OCTAVO_API Tensor as_grid(const Tensor& transposed, const Shape& grid);

}  // namespace octavo
