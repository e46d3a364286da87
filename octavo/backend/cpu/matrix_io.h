// Gather and scatter: elements of a matrix of any strides and packing as contiguous memory, and
// back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cpu {

inline constexpr std::int64_t kStage =
    2048;  // elements staged at a time; a multiple of 8 for packing

// Not of packed weights.
std::byte* element(const Matrix& matrix, std::int64_t row, std::int64_t col);

int bytes_of(const Matrix& matrix);

// Contiguous and aligned along a row, so that a span kernel can read and write the matrix itself.
bool is_contiguous(const Matrix& matrix);

// Contiguous elements of a row; `stage` is used only where the matrix is not contiguous. `col` of a
// packed row is a multiple of 8. Packed weights are put together word by word.
const void* gather(const Matrix& matrix, std::int64_t row, std::int64_t col, std::int64_t n,
                   std::byte* stage);
void scatter(const Matrix& matrix, std::int64_t row, std::int64_t col, std::int64_t n,
             const std::byte* stage);

}  // namespace octavo::cpu
