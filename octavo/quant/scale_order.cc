#include "octavo/quant/scale_order.h"

#include <cstring>

#include "octavo/base/error.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {

Shape scale_strides(const Shape& grid, int bytes, ScaleOrder order) {
  Shape strides = grid;
  std::int64_t stride = bytes;
  const int last = grid.rank() - 1;
  const auto place = [&](int i) {
    strides[i] = stride;
    // Only grids without elements can overflow; any stride serves them.
    if (__builtin_mul_overflow(stride, grid[i], &stride)) stride = 0;
  };
  if (order == ScaleOrder::row_major && last >= 0) place(last);
  for (int i = last - 1; i >= 0; --i) place(i);
  if (order == ScaleOrder::col_major && last >= 0) place(last);
  return strides;
}

bool is_ordered(const View& scales, ScaleOrder order) {
  if (element_count(scales.shape) == 0) return true;
  const Shape wanted =
      scale_strides(scales.shape, element_bytes(scales.dtype, scales.format), order);
  for (int i = 0; i < scales.shape.rank(); ++i)
    if (scales.shape[i] > 1 && scales.strides[i] != wanted[i]) return false;
  return true;
}

Tensor in_order(const Tensor& scales, ScaleOrder order) {
  const View& from = scales.view();
  if (is_ordered(from, order)) return scales;
  check_on_cpu(from, "scales", "the grid of scales");
  const ScaleOrder other =
      order == ScaleOrder::row_major ? ScaleOrder::col_major : ScaleOrder::row_major;
  check(is_ordered(from, other), ErrorCode::invalid_argument, "scales",
        "the scales have gaps between them; make them contiguous");
  const Tensor to = from.dtype == DType::code ? Tensor::codes(from.shape, from.format)
                                              : Tensor::values(from.shape, from.dtype);
  View view = to.view();
  const int bytes = element_bytes(from.dtype, from.format), last = from.shape.rank() - 1;
  view.strides = scale_strides(from.shape, bytes, order);
  // All dimensions but the last are one, in either order.
  const std::int64_t cols = from.shape[last], rows = element_count(from.shape) / cols;
  const auto row_stride = [&](ScaleOrder kind) {
    return kind == ScaleOrder::row_major ? cols * bytes : std::int64_t{bytes};
  };
  const auto* in = static_cast<const std::byte*>(from.data);
  auto* out = static_cast<std::byte*>(view.data);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t col = 0; col < cols; ++col)
      std::memcpy(out + row * row_stride(order) + col * view.strides[last],
                  in + row * row_stride(other) + col * from.strides[last],
                  static_cast<std::size_t>(bytes));
  return Tensor::adopt(view, to.owner());
}

}  // namespace octavo
