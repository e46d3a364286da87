#include "octavo/backend/cpu/matrix_io.h"

#include <algorithm>
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

// A code of four bits of a word of packed weights.
std::byte code_of_word(const std::byte* word, const PanelOrder& order, std::int64_t at) {
  const int half = order.step / 2;
  const bool upper = order.halves ? at >= half : at % 2 != 0;
  return word[order.halves ? at % half : at / 2] >> (upper ? 4 : 0) & std::byte{15};
}

// A word of packed weights: of four or eight bytes in memory, or codes of four bits.
void copy_word(bool packed, const std::byte* word, const PanelOrder& order, std::int64_t bytes,
               std::byte* to) {
  const int step = order.step;
  if (packed) {
    for (int j = 0; j < step; ++j) to[j] = code_of_word(word, order, j);
  } else if (step * bytes == 4) {
    std::memcpy(to, word, 4);
  } else {
    std::memcpy(to, word, static_cast<std::size_t>(step * bytes));
  }
}

// Words of `step` elements of a row, one from each row of words. Codes of four bits become a byte
// each.
void gather_from_panels(const Matrix& matrix, std::int64_t row, std::int64_t col, std::int64_t n,
                        std::byte* stage) {
  const PanelOrder& order = matrix.panels;
  const auto bytes = static_cast<std::int64_t>(bytes_of(matrix));
  const auto bytes_at = [&](std::int64_t index) {
    return matrix.packed ? index / 2 : index * bytes;
  };
  const auto* from = static_cast<const std::byte*>(matrix.data);
  const std::int64_t apart = bytes_at(std::int64_t{order.cols} * order.step);
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t within = (col + i) % order.step, some = std::min(order.step - within, n - i);
    const std::byte* word = from + bytes_at(order.index(row, col + i - within, matrix.cols));
    if (within == 0 && some == order.step) {  // whole words, without searching for each
      const std::int64_t words = (n - i) / order.step;
      for (std::int64_t w = 0; w < words; ++w, word += apart, i += order.step)
        copy_word(matrix.packed, word, order, bytes, stage + i * bytes);
      continue;
    }
    for (std::int64_t j = 0; j < some; ++j, ++i) {
      const std::int64_t at = within + j;
      if (matrix.packed)
        stage[i] = code_of_word(word, order, at);
      else
        std::memcpy(stage + i * bytes, word + at * bytes, static_cast<std::size_t>(bytes));
    }
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
