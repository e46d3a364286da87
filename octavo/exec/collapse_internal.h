// Collapses dimensions of two views: adjacent dimensions that are contiguous in both views become
// one; dimensions beyond two are iterated, so that kernels see matrices.
#pragma once

#include <array>
#include <cstdint>

#include "octavo/tensor/view.h"

namespace octavo {

// Do the bytes of the two views, taken from first to last, overlap? Holds for any strides.
bool bytes_overlap(const View& a, const View& b);

// The memory span from a view's first byte to its last; 0 bytes where it has no elements or more
// than fit in 64 bits. A view without gaps spans exactly its own bytes.
struct MemorySpan {
  std::int64_t bytes = 0;
  std::int64_t before = 0;  // how many of them lie before `data`
};
MemorySpan memory_span(const View& view);

struct CollapsedViews {
  int rank = 0;  // at least 2 unless there are no elements
  std::array<std::int64_t, kMaxRank + 2> sizes{}, from_strides{}, to_strides{}, beside_strides{};
  bool empty = false;
};

// `to` is dense; `from` has any strides, and so has `beside`, which is optional: values of the same
// shape that are not packed, such as a factor for each element.
CollapsedViews collapse_views(const View& from, const View& to, const View* beside = nullptr);

// Calls visit(from, to, beside, first) for every matrix; `first` counts the elements before it in
// row-major order. Without a view beside the two, the matrix there has no memory.
template <typename Visit>
void for_each_matrix_beside(const View& from, const View& to, const View* beside, Visit&& visit) {
  const CollapsedViews collapsed = collapse_views(from, to, beside);
  if (collapsed.empty) return;
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  const auto row = at(collapsed.rank - 2), col = at(collapsed.rank - 1);
  const auto matrix = [&](const View& view, const auto& strides, std::int64_t offset) {
    return Matrix{.data = static_cast<std::byte*>(view.data) + offset,
                  .dtype = view.dtype,
                  .format = view.format,
                  .packed = view.packed,
                  .rows = collapsed.sizes[row],
                  .cols = collapsed.sizes[col],
                  .row_pitch = strides[row],
                  .col_stride = strides[col]};
  };
  std::array<std::int64_t, kMaxRank + 2> position{};
  std::int64_t from_offset = 0, to_offset = 0, beside_offset = 0;
  std::uint64_t first = 0;
  while (true) {
    visit(matrix(from, collapsed.from_strides, from_offset),
          matrix(to, collapsed.to_strides, to_offset),
          beside != nullptr ? matrix(*beside, collapsed.beside_strides, beside_offset) : Matrix{},
          first);
    first += static_cast<std::uint64_t>(collapsed.sizes[row] * collapsed.sizes[col]);
    int axis = collapsed.rank - 3;
    for (; axis >= 0; --axis) {
      from_offset += collapsed.from_strides[at(axis)];
      to_offset += collapsed.to_strides[at(axis)];
      beside_offset += collapsed.beside_strides[at(axis)];
      if (++position[at(axis)] < collapsed.sizes[at(axis)]) break;
      from_offset -= collapsed.from_strides[at(axis)] * collapsed.sizes[at(axis)];
      to_offset -= collapsed.to_strides[at(axis)] * collapsed.sizes[at(axis)];
      beside_offset -= collapsed.beside_strides[at(axis)] * collapsed.sizes[at(axis)];
      position[at(axis)] = 0;
    }
    if (axis < 0) return;
  }
}

// Calls visit(from, to, first).
template <typename Visit>
void for_each_matrix(const View& from, const View& to, Visit&& visit) {
  for_each_matrix_beside(from, to, nullptr,
                         [&](const Matrix& matrix_from, const Matrix& matrix_to, const Matrix&,
                             std::uint64_t first) { visit(matrix_from, matrix_to, first); });
}

}  // namespace octavo
