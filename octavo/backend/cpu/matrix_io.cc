#include "octavo/backend/cpu/matrix_io.h"

#include <cstring>

#include "octavo/backend/cpu/bit_packing.h"

namespace octavo::cpu {
namespace {

template <typename Element>
void copy_strided(const std::byte* from, std::int64_t from_stride, std::byte* to,
                  std::int64_t to_stride, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    std::memcpy(to + i * to_stride, from + i * from_stride, sizeof(Element));
}

void copy_elements(const std::byte* from, std::int64_t from_stride, std::byte* to,
                   std::int64_t to_stride, std::int64_t n, int bytes) {
  switch (bytes) {
    case 1:
      return copy_strided<std::uint8_t>(from, from_stride, to, to_stride, n);
    case 2:
      return copy_strided<std::uint16_t>(from, from_stride, to, to_stride, n);
    case 4:
      return copy_strided<std::uint32_t>(from, from_stride, to, to_stride, n);
    default:
      return copy_strided<std::uint64_t>(from, from_stride, to, to_stride, n);
  }
}

void gather_from_panels(const Matrix& matrix, std::int64_t row, std::int64_t col, std::int64_t n,
                        std::byte* stage) {
  const auto* from = static_cast<const std::byte*>(matrix.data);
  const auto bytes = static_cast<std::size_t>(bytes_of(matrix));
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t at = matrix.panels.index(row, col + i, matrix.cols);
    if (matrix.packed)  // two codes in a byte
      stage[i] = from[at / 2] >> (at % 2 * 4) & std::byte{15};
    else
      std::memcpy(stage + static_cast<std::size_t>(i) * bytes,
                  from + static_cast<std::size_t>(at) * bytes, bytes);
  }
}

}  // namespace

std::byte* element(const Matrix& matrix, std::int64_t row, std::int64_t col) {
  auto* start = static_cast<std::byte*>(matrix.data) + row * matrix.row_pitch;
  return start + (matrix.packed ? col * matrix.format.bits() / 8 : col * matrix.col_stride);
}

int bytes_of(const Matrix& matrix) { return element_bytes(matrix.dtype, matrix.format); }

bool is_contiguous(const Matrix& matrix) {
  const int bytes = bytes_of(matrix);
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(matrix.data) % static_cast<unsigned>(bytes) == 0 &&
      (matrix.row_pitch % bytes == 0 || matrix.rows <= 1);
  return !matrix.packed && !matrix.panels.exists() && aligned &&
         (matrix.col_stride == bytes || matrix.cols <= 1);
}

const void* gather(const Matrix& matrix, std::int64_t row, std::int64_t col, std::int64_t n,
                   std::byte* stage) {
  if (matrix.panels.exists()) {
    gather_from_panels(matrix, row, col, n, stage);
    return stage;
  }
  const std::byte* from = element(matrix, row, col);
  if (is_contiguous(matrix)) return from;
  if (matrix.packed) {
    unpack_codes(reinterpret_cast<const std::uint8_t*>(from), n, matrix.format.bits(),
                 reinterpret_cast<std::uint8_t*>(stage));
  } else {
    copy_elements(from, matrix.col_stride, stage, bytes_of(matrix), n, bytes_of(matrix));
  }
  return stage;
}

void scatter(const Matrix& matrix, std::int64_t row, std::int64_t col, std::int64_t n,
             const std::byte* stage) {
  std::byte* to = element(matrix, row, col);
  if (matrix.packed) {
    pack_codes(reinterpret_cast<const std::uint8_t*>(stage), n, matrix.format.bits(),
               reinterpret_cast<std::uint8_t*>(to));
  } else if (is_contiguous(matrix)) {
    std::memcpy(to, stage, static_cast<std::size_t>(n * bytes_of(matrix)));
  } else {
    copy_elements(stage, bytes_of(matrix), to, matrix.col_stride, n, bytes_of(matrix));
  }
}

}  // namespace octavo::cpu
