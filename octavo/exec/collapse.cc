#include <algorithm>
#include <utility>

#include "octavo/exec/collapse_internal.h"

namespace octavo {
namespace {

// Hostile strides times sizes need not fit in 64 bits.
__extension__ typedef __int128 Wide;

std::pair<Wide, Wide> byte_range(const View& view) {
  Wide first = reinterpret_cast<std::uintptr_t>(view.data), last = first;
  const int rank = view.shape.rank();
  for (int i = 0; i < rank; ++i) {
    if (view.packed && i == rank - 1) continue;
    const Wide reach = static_cast<Wide>(view.strides[i]) * (view.shape[i] - 1);
    (reach < 0 ? first : last) += reach;
  }
  const std::int64_t tail = view.packed
                                ? packed_row_bytes(rank > 0 ? view.shape[rank - 1] : 1, view.format)
                                : element_bytes(view.dtype, view.format);
  return {first, last + tail};
}

}  // namespace

bool bytes_overlap(const View& a, const View& b) {
  const auto [a_first, a_last] = byte_range(a);
  const auto [b_first, b_last] = byte_range(b);
  return a_first < b_last && b_first < a_last;
}

MemorySpan memory_span(const View& view) {
  if (element_count(view.shape) == 0) return {};
  const auto [first, last] = byte_range(view);
  if (last - first > INT64_MAX) return {};
  return {.bytes = static_cast<std::int64_t>(last - first),
          .before = static_cast<std::int64_t>(
              static_cast<Wide>(reinterpret_cast<std::uintptr_t>(view.data)) - first)};
}

CollapsedViews collapse_views(const View& from, const View& to, const View* beside) {
  CollapsedViews collapsed;
  const bool packed = from.packed || to.packed;
  const auto append = [&](std::int64_t size, std::int64_t from_stride, std::int64_t to_stride,
                          std::int64_t beside_stride) {
    const auto at = static_cast<std::size_t>(collapsed.rank++);
    collapsed.sizes[at] = size;
    collapsed.from_strides[at] = from_stride;
    collapsed.to_strides[at] = to_stride;
    collapsed.beside_strides[at] = beside_stride;
  };
  for (int i = 0; i < from.shape.rank(); ++i) {
    const std::int64_t size = from.shape[i];
    if (size == 0) collapsed.empty = true;
    const bool last = i == from.shape.rank() - 1;
    const std::int64_t beside_stride = beside != nullptr ? beside->strides[i] : 0;
    if (size == 1 && !(packed && last)) continue;
    // Rows of packed codes start on a byte, so no dimension can be collapsed into the last one.
    if (collapsed.rank > 0 && !(packed && last)) {
      const auto outer = static_cast<std::size_t>(collapsed.rank - 1);
      const auto spans = [size](std::int64_t inner, std::int64_t outer_stride) {
        return static_cast<Wide>(inner) * size ==
               outer_stride;  // hostile strides must not overflow
      };
      if (spans(from.strides[i], collapsed.from_strides[outer]) &&
          spans(to.strides[i], collapsed.to_strides[outer]) &&
          spans(beside_stride, collapsed.beside_strides[outer])) {
        collapsed.sizes[outer] *= size;
        collapsed.from_strides[outer] = from.strides[i];
        collapsed.to_strides[outer] = to.strides[i];
        collapsed.beside_strides[outer] = beside_stride;
        continue;
      }
    }
    append(size, from.strides[i], to.strides[i], beside_stride);
  }
  if (collapsed.empty) return collapsed;
  if (collapsed.rank == 0)
    append(1, element_bytes(from.dtype, from.format), element_bytes(to.dtype, to.format), 0);
  if (collapsed.rank == 1) {
    append(collapsed.sizes[0], collapsed.from_strides[0], collapsed.to_strides[0],
           collapsed.beside_strides[0]);
    collapsed.sizes[0] = 1;
  }
  return collapsed;
}

}  // namespace octavo
