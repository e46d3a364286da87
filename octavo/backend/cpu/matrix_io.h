// Elements of a matrix as contiguous memory and back, whatever its strides and packing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cpu {

inline constexpr std::int64_t kStage =
    2048;  // elements staged at a time; a multiple of 8 for packing

std::byte* element(const Matrix& matrix, std::int64_t row, std::int64_t col);

int bytes_of(const Matrix& matrix);

// Contiguous and aligned along a row, so that a span kernel may work on the memory itself.
bool is_contiguous(const Matrix& matrix);

// Contiguous elements of a row; `stage` is used only where the matrix does not have them itself.
// A packed row is entered at multiples of 8 columns only.
const void* gather(const Matrix& matrix, std::int64_t row, std::int64_t col, std::int64_t n,
                   std::byte* stage);
void scatter(const Matrix& matrix, std::int64_t row, std::int64_t col, std::int64_t n,
             const std::byte* stage);

}  // namespace octavo::cpu
