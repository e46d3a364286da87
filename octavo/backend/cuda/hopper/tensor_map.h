// Tensor maps (TMA descriptors) of matrices, made by the driver, and how many clusters run at once.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Number of clusters of `blocks` blocks that are co-resident on the Exec's device.
[[nodiscard]] int clusters_on(const Exec& exec, int blocks);

// The tensor map of a matrix: boxes of `box_rows` rows by 128 bytes, 128B swizzle.
[[nodiscard]] CUtensorMap tensor_map_of(const Matrix& matrix, int box_rows);
// The same over rows of bytes, in boxes of 32, 64 or 128 bytes with the swizzle of that width.
[[nodiscard]] CUtensorMap tensor_map_of_bytes(const Matrix& matrix, std::int64_t row_bytes,
                                              int box_bytes, int box_rows);
// The tensor map of matrices of all heads and batches, pitches in bytes: boxes of box_bytes of
// box_rows rows of one of them, swizzled by lines of box_bytes, which are 64 or 128.
[[nodiscard]] CUtensorMap tensor_map_of_heads(const Matrix& first, std::int64_t heads,
                                              std::int64_t head_pitch, std::int64_t batches,
                                              std::int64_t batch_pitch, int box_bytes,
                                              int box_rows);
// Whether TMA can read the matrix: element type, strides and alignment.
[[nodiscard]] bool fits_tensor_map(const Matrix& matrix);

}  // namespace octavo::cuda
