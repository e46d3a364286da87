#include "octavo/base/error.h"
#include "octavo/quant/quantize_plan_internal.h"

namespace octavo {

int checked_axis(const Shape& shape, const Scaling& scaling) {
  const int rank = shape.rank();
  if (rank == 0) return 0;
  const int axis = axis_of(scaling, rank);
  check(axis >= 0 && axis < rank, ErrorCode::invalid_argument, "quantize", "got axis ",
        scaling.axis, "; expected ", -rank, " to ", rank - 1, " for a tensor of ", rank,
        " dimensions");
  const bool along_last = axis == rank - 1;
  check(along_last || scaling.tile.rows == 1 || scaling.tile == Tile{0, 0},
        ErrorCode::invalid_argument, "quantize", "got tile ", scaling.tile.rows, "x",
        scaling.tile.cols, " along axis ", scaling.axis,
        "; tiles of several rows run along the last two dimensions: transpose the tensor, or use "
        "tile.rows = 1");
  return axis;
}

Shape transposed_shape(const Shape& shape) {
  const int rank = shape.rank();
  if (rank == 0) return {1, 1};
  std::int64_t rows = 1;
  for (int i = 0; i < rank - 1; ++i) rows *= shape[i];
  return {shape[rank - 1], rows};
}

namespace {

// Null: not given.
MatrixPlan plan_of(const View& values, const View* codes, const View* scales,
                   const Scaling& scaling) {
  const Shape& shape = values.shape;
  const int rank = shape.rank(), axis = checked_axis(shape, scaling);
  const bool per_tensor = scaling.tile == Tile{0, 0};
  MatrixPlan plan;
  const auto dim = [&](int i) {
    return PlanDim{shape[i], values.strides[i], codes == nullptr ? 0 : codes->strides[i],
                   scales == nullptr || per_tensor ? 0 : scales->strides[i]};
  };
  for (int i = 0; i < rank; ++i) plan.empty |= shape[i] == 0;
  const int bytes = element_bytes(values.dtype, values.format);
  if (rank == 0) {
    plan.col = {1, bytes, codes == nullptr ? 0 : codes->format.code_bytes(), 0};
    plan.row = plan.col;
    plan.tile = scaling.tile;
    return plan;
  }
  plan.col = dim(rank - 1);
  if (axis != rank - 1 && !per_tensor) {
    plan.row = dim(axis);
    plan.tile = {scaling.tile.cols, 1};
    for (int i = 0; i < rank - 1; ++i)
      if (i != axis) plan.walked[static_cast<std::size_t>(plan.walked_rank++)] = dim(i);
    return plan;
  }
  plan.tile = scaling.tile;
  if (rank == 1) {
    plan.row = {1, plan.col.value_stride, plan.col.code_stride, 0};
    plan.tile.rows = 1;
    return plan;
  }
  plan.row = dim(rank - 2);
  // Where a tile has one row, or is the whole tensor, leading dimensions collapse into rows.
  const bool rows_alone = scaling.tile.rows == 1 || per_tensor;
  int next = rank - 3;
  for (; next >= 0 && rows_alone; --next) {
    const PlanDim outer = dim(next);
    const bool follows = outer.value_stride == plan.row.value_stride * plan.row.size &&
                         outer.code_stride == plan.row.code_stride * plan.row.size &&
                         outer.scale_stride == plan.row.scale_stride * plan.row.size;
    if (!follows && outer.size != 1 && plan.row.size != 1) break;
    if (plan.row.size == 1) {
      plan.row = {outer.size, outer.value_stride, outer.code_stride, outer.scale_stride};
    } else {
      plan.row.size *= outer.size;
    }
  }
  for (int i = 0; i <= next; ++i)
    if (shape[i] != 1) plan.walked[static_cast<std::size_t>(plan.walked_rank++)] = dim(i);
  return plan;
}

}  // namespace

MatrixPlan make_plan(const View& values, const View& codes, const View& scales,
                     const Scaling& scaling) {
  return plan_of(values, &codes, &scales, scaling);
}

MatrixPlan make_plan(const View& values, const Scaling& scaling) {
  return plan_of(values, nullptr, nullptr, scaling);
}

}  // namespace octavo
