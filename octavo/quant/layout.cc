// A layout is an offset for every row plus one for every column; packing and unpacking are one
// loop.
#include "octavo/quant/layout.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/tensor/view_checks.h"

namespace octavo {
namespace {

// The swizzle: 128 rows are four groups of 32; a line of 16 bytes has one row of each group.
constexpr std::int64_t kTileRows = 128, kTileCols = 4, kGroupRows = 32, kLineBytes = 16;
constexpr std::int64_t kTileBytes = kTileRows * kTileCols;
static_assert(kTileBytes == kGroupRows * kLineBytes);

constexpr int kMaxPad = 1 << 20;
constexpr int kTransposedPad = 4;

std::int64_t rounded_up(std::int64_t size, std::int64_t multiple, std::string_view op) {
  std::int64_t up = 0;
  check(!__builtin_add_overflow(size, multiple - 1, &up), ErrorCode::invalid_argument, op,
        "a grid of ", size, " scales does not fit in 64 bits when padded");
  return up / multiple * multiple;
}

// Rows and columns; a grid of rank 1 is one row.
std::int64_t rows_of(const Shape& grid) { return grid.rank() < 2 ? 1 : grid[grid.rank() - 2]; }
std::int64_t cols_of(const Shape& grid) { return grid[grid.rank() - 1]; }

void check_grid(const Shape& grid, std::string_view op) {
  check(grid.rank() >= 1, ErrorCode::invalid_argument, op,
        "got a grid of no dimensions; expected [rows, columns] of scales; one scale for everything "
        "has no layout");
  (void)element_count(grid);
}

void check_scales(const View& scales, ScaleLayout layout, std::string_view op) {
  check_on_cpu(scales, op, "the grid of scales");
  check(scales.strides.rank() == scales.shape.rank(), ErrorCode::invalid_argument, op,
        "the scales have ", scales.shape.rank(), " dimensions but ", scales.strides.rank(),
        " strides; give one stride per dimension");
  check(!scales.packed, ErrorCode::wrong_type, op,
        "got packed codes; expected scales of whole bytes");
  check(scales.data != nullptr || element_count(scales.shape) == 0, ErrorCode::invalid_argument, op,
        "the scales have no memory (null data); give those of a QuantizedTensor");
  if (layout == ScaleLayout::swizzled_128x4 && element_bytes(scales.dtype, scales.format) != 1) {
    fail(ErrorCode::wrong_type, op, "got scales of ",
         scales.dtype == DType::code ? "two-byte codes" : dtype_name(scales.dtype),
         "; expected one byte each (e8m0 or e4m3); the 128x4 swizzle is made of bytes, use "
         "transposed for others");
  }
}

int checked_pad(ScaleLayout layout, int pad, std::string_view op) {
  check(pad >= 0 && pad <= kMaxPad, ErrorCode::invalid_argument, op, "got pad = ", pad,
        "; expected 0 (the layout's own) to ", kMaxPad);
  check(layout != ScaleLayout::swizzled_128x4 || pad == 0, ErrorCode::invalid_argument, op,
        "got pad = ", pad, " for the 128x4 swizzle, which pads to 128 x 4 by itself; leave it out");
  if (pad > 0) return pad;
  return layout == ScaleLayout::transposed ? kTransposedPad : 1;
}

// Where the scales of one grid are, in bytes: scale (r, c) is at rows[r] + cols[c]. Every layout is
// such a sum.
struct Places {
  std::vector<std::int64_t> rows, cols;

  Places(const Shape& grid, const auto& row_place, const auto& col_place) {
    for (std::int64_t row = 0; row < rows_of(grid); ++row) rows.push_back(row_place(row));
    for (std::int64_t col = 0; col < cols_of(grid); ++col) cols.push_back(col_place(col));
  }
};

Places strided_places(const Shape& grid, std::int64_t row_stride, std::int64_t col_stride) {
  return {grid, [=](std::int64_t row) { return row * row_stride; },
          [=](std::int64_t col) { return col * col_stride; }};
}

// `laid_out` is the shape of the layout, padding included.
Places layout_places(const Shape& grid, ScaleLayout layout, const Shape& laid_out, int bytes) {
  const std::int64_t pitch = cols_of(laid_out) * bytes;
  if (layout == ScaleLayout::row_major) return strided_places(grid, pitch, bytes);
  if (layout == ScaleLayout::transposed) return strided_places(grid, bytes, pitch);
  const std::int64_t tiles = cols_of(laid_out) / kTileCols;
  return {grid,
          [=](std::int64_t row) {
            return row / kTileRows * tiles * kTileBytes + row % kGroupRows * kLineBytes +
                   row % kTileRows / kGroupRows * kTileCols;
          },
          [](std::int64_t col) { return col / kTileCols * kTileBytes + col % kTileCols; }};
}

template <int kBytes>
void copy_grid_of(const std::byte* from, const Places& from_at, std::byte* to,
                  const Places& to_at) {
  for (std::size_t row = 0; row < to_at.rows.size(); ++row)
    for (std::size_t col = 0; col < to_at.cols.size(); ++col)
      std::memcpy(to + to_at.rows[row] + to_at.cols[col],
                  from + from_at.rows[row] + from_at.cols[col], kBytes);
}

void copy_grid(int bytes, const std::byte* from, const Places& from_at, std::byte* to,
               const Places& to_at) {
  if (bytes == 1) return copy_grid_of<1>(from, from_at, to, to_at);
  if (bytes == 2) return copy_grid_of<2>(from, from_at, to, to_at);
  if (bytes == 4) return copy_grid_of<4>(from, from_at, to, to_at);
  return copy_grid_of<8>(from, from_at, to, to_at);
}

// Calls visit(offset in bytes, number) for every grid of a stack of any strides.
template <typename Visit>
void for_each_grid(const View& stack, Visit&& visit) {
  const int outer = stack.shape.rank() - 2;
  std::array<std::int64_t, kMaxRank> position{};
  std::int64_t offset = 0;
  for (std::int64_t number = 0;; ++number) {
    visit(offset, number);
    int axis = outer - 1;
    for (; axis >= 0; --axis) {
      auto& at = position[static_cast<std::size_t>(axis)];
      offset += stack.strides[axis];
      if (++at < stack.shape[axis]) break;
      offset -= stack.strides[axis] * at;
      at = 0;
    }
    if (axis < 0) return;
  }
}

Tensor like(const View& scales, const Shape& shape) {
  return scales.dtype == DType::code ? Tensor::codes(shape, scales.format)
                                     : Tensor::values(shape, scales.dtype);
}

// Does `shape` hold `grid` in this layout, padded to whatever?
bool holds(const Shape& shape, const Shape& grid, ScaleLayout layout) {
  if (layout == ScaleLayout::swizzled_128x4)
    return element_count(shape) == element_count(layout_shape(grid, layout));
  Shape wanted = layout_shape(grid, layout, 1);
  if (shape.rank() != wanted.rank()) return false;
  const int last = wanted.rank() - 1;
  if (shape[last] < wanted[last]) return false;
  wanted[last] = shape[last];
  return shape == wanted;
}

void check_holds(const Tensor& scales, const Shape& grid, ScaleLayout layout, std::string_view op) {
  if (holds(scales.shape(), grid, layout)) return;
  fail(ErrorCode::invalid_argument, op, "got scales of shape ", to_string(scales.shape()),
       " for a grid of ", to_string(grid), "; expected ",
       to_string(layout_shape(grid, layout, layout == ScaleLayout::swizzled_128x4 ? 0 : 1)),
       layout == ScaleLayout::swizzled_128x4 ? " or as many bytes in another shape"
                                             : " or more in the last dimension",
       "; give the grid's shape before it was laid out, see scale_shape");
}

}  // namespace

Shape layout_shape(const Shape& grid, ScaleLayout layout, int pad) {
  constexpr std::string_view kOp = "layout_shape";
  check_grid(grid, kOp);
  const std::int64_t multiple = checked_pad(layout, pad, kOp);
  const std::int64_t rows = rows_of(grid), cols = cols_of(grid);
  Shape out = grid.rank() < 2 ? Shape{rows, cols} : grid;
  const int last = out.rank() - 1;
  switch (layout) {
    case ScaleLayout::row_major:
      if (grid.rank() < 2) out = grid;
      out[out.rank() - 1] = rounded_up(cols, multiple, kOp);
      break;
    case ScaleLayout::transposed:
      out[last - 1] = cols;
      out[last] = rounded_up(rows, multiple, kOp);
      break;
    case ScaleLayout::swizzled_128x4:
      out[last - 1] = rounded_up(rows, kTileRows, kOp);
      out[last] = rounded_up(cols, kTileCols, kOp);
      break;
  }
  return out;
}

Tensor to_layout(const Tensor& scales, ScaleLayout layout, int pad) {
  constexpr std::string_view kOp = "to_layout";
  const View& from = scales.view();
  check_grid(from.shape, kOp);
  check_scales(from, layout, kOp);
  Tensor out = like(from, layout_shape(from.shape, layout, pad));
  if (out.nbytes() > 0) std::memset(out.view().data, 0, static_cast<std::size_t>(out.nbytes()));
  if (element_count(from.shape) == 0) return out;

  const int rank = from.shape.rank(), bytes = element_bytes(from.dtype, from.format);
  const Places from_at =
      strided_places(from.shape, rank < 2 ? 0 : from.strides[rank - 2], from.strides[rank - 1]);
  const Places to_at = layout_places(from.shape, layout, out.shape(), bytes);
  const std::int64_t grid_bytes = rows_of(out.shape()) * cols_of(out.shape()) * bytes;
  for_each_grid(from, [&](std::int64_t offset, std::int64_t number) {
    copy_grid(bytes, static_cast<const std::byte*>(from.data) + offset, from_at,
              static_cast<std::byte*>(out.view().data) + number * grid_bytes, to_at);
  });
  return out;
}

Tensor from_layout(const Tensor& scales, ScaleLayout layout, const Shape& grid) {
  constexpr std::string_view kOp = "from_layout";
  const View& from = scales.view();
  check_grid(grid, kOp);
  check_scales(from, layout, kOp);
  check_holds(scales, grid, layout, kOp);
  check(is_dense(from), ErrorCode::invalid_argument, kOp,
        "the scales are not contiguous; copy them into contiguous memory first");
  Tensor out = like(from, grid);
  if (element_count(grid) == 0) return out;

  const int bytes = element_bytes(from.dtype, from.format);
  const Shape laid_out =
      layout == ScaleLayout::swizzled_128x4 ? layout_shape(grid, layout) : from.shape;
  const Places from_at = layout_places(grid, layout, laid_out, bytes);
  const Places to_at = strided_places(grid, cols_of(grid) * bytes, bytes);
  const std::int64_t grid_bytes = rows_of(laid_out) * cols_of(laid_out) * bytes;
  for_each_grid(out.view(), [&](std::int64_t offset, std::int64_t number) {
    copy_grid(bytes, static_cast<const std::byte*>(from.data) + number * grid_bytes, from_at,
              static_cast<std::byte*>(out.view().data) + offset, to_at);
  });
  return out;
}

Tensor as_grid(const Tensor& transposed, const Shape& grid) {
  constexpr std::string_view kOp = "as_grid";
  check_grid(grid, kOp);
  check_holds(transposed, grid, ScaleLayout::transposed, kOp);
  View view = transposed.view();
  const int last = view.shape.rank() - 1;
  std::swap(view.strides[last - 1], view.strides[last]);
  if (grid.rank() < 2) view.strides = Shape{view.strides[last]};
  view.shape = grid;
  return Tensor::adopt(view, transposed.owner());
}

}  // namespace octavo
