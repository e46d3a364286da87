// Elements as bits: which magnitude is the largest, and matrices transposed; and a product of f64.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "octavo/backend/reference/reference_internal.h"

namespace octavo::reference {

std::uint64_t largest_bits(const Exec&, DType dtype, const void* values, std::int64_t count) {
  const auto size = static_cast<std::size_t>(element_bytes(dtype));
  const std::uint64_t magnitude = (std::uint64_t{1} << (8 * size - 1)) - 1;
  std::uint64_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const std::byte*>(values) + static_cast<std::size_t>(i) * size,
                size);
    largest = std::max(largest, bits & magnitude);
  }
  return largest;
}

bool subtract_f64(const Exec&, const F64Update& update) {
  const auto at = [&](const double* packed, std::int64_t row, std::int64_t k) {
    return packed[row / kF64Panel * kF64Panel * update.depth + k * kF64Panel + row % kF64Panel];
  };
  for (std::int64_t row = 0; row < update.rows; ++row)
    for (std::int64_t col = 0; col < update.cols; ++col) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < update.depth; ++k)
        sum += at(update.a, row, k) * at(update.b, col, k);
      update.c[row * update.pitch + col] -= sum;
    }
  return true;
}

void transpose(const Exec&, const Matrix& from, const Matrix& to) {
  const std::int64_t size = element_bytes(from.dtype, from.format);
  for (std::int64_t row = 0; row < from.rows; ++row)
    for (std::int64_t col = 0; col < from.cols; ++col)
      std::memcpy(static_cast<std::byte*>(to.data) + (col * from.rows + row) * size,
                  static_cast<const std::byte*>(from.data) + (row * from.cols + col) * size,
                  static_cast<std::size_t>(size));
}

}  // namespace octavo::reference
