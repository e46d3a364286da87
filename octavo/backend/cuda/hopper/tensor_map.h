// Tensor maps (TMA descriptors) of matrices, made by the driver, and how many clusters run at once.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Clusters of `blocks` blocks that run at one time on the device of an Exec.
[[nodiscard]] int clusters_on(const Exec& exec, int blocks);

// The map of a matrix for the copy engine: boxes of `box_rows` rows and 128 bytes, swizzled.
[[nodiscard]] CUtensorMap map_of(const Matrix& matrix, int box_rows);
// The same of rows of bytes, in boxes of 32, 64 or 128 bytes, swizzled among themselves.
[[nodiscard]] CUtensorMap map_of_bytes(const Matrix& matrix, std::int64_t row_bytes, int box_bytes,
                                       int box_rows);
// Whether there can be one.
[[nodiscard]] bool can_be_mapped(const Matrix& matrix);

}  // namespace octavo::cuda
