// MatrixPlan: an array of any rank as matrices for the kernels: which two dimensions are rows and
// columns, and which are iterated.
#pragma once

#include <array>
#include <cstdint>

#include "octavo/quant/quantized_tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

// The axis counted from 0, for a tensor of `rank` dimensions.
inline int axis_of(const Scaling& scaling, int rank) {
  return scaling.axis < 0 ? scaling.axis + rank : scaling.axis;
}
// The same; throws when the scaling cannot be used on this shape.
int checked_axis(const Shape& shape, const Scaling& scaling);

// [last, product of the others].
Shape transposed_shape(const Shape& shape);

// Byte strides of what belongs together: values, codes, scales.
struct PlanDim {
  std::int64_t size = 1, value_stride = 0, code_stride = 0, scale_stride = 0;
};

struct MatrixPlan {
  std::array<PlanDim, kMaxRank> walked{};
  int walked_rank = 0;
  PlanDim row{}, col{};
  Tile tile{};  // on the matrices
  bool empty = false;

  // Is all of it one matrix?
  [[nodiscard]] bool is_one_matrix() const { return walked_rank == 0; }
};

// `values` has any strides, codes are dense, scales have no gaps (scale_order.h). Leading
// dimensions become rows where memory and tile allow it.
MatrixPlan make_plan(const View& values, const View& codes, const View& scales,
                     const Scaling& scaling);
// Strides are reported for values only.
MatrixPlan make_plan(const View& values, const Scaling& scaling);

// Calls visit(value_offset, code_offset, scale_offset, first) for every matrix; `first` counts the
// elements before it.
template <typename Visit>
void for_each_plan_matrix(const MatrixPlan& plan, Visit&& visit) {
  if (plan.empty) return;
  std::array<std::int64_t, kMaxRank> position{};
  std::int64_t value = 0, code = 0, scale = 0;
  std::uint64_t first = 0;
  while (true) {
    visit(value, code, scale, first);
    first += static_cast<std::uint64_t>(plan.row.size * plan.col.size);
    int axis = plan.walked_rank - 1;
    for (; axis >= 0; --axis) {
      const auto at = static_cast<std::size_t>(axis);
      const PlanDim& dim = plan.walked[at];
      value += dim.value_stride;
      code += dim.code_stride;
      scale += dim.scale_stride;
      if (++position[at] < dim.size) break;
      value -= dim.value_stride * dim.size;
      code -= dim.code_stride * dim.size;
      scale -= dim.scale_stride * dim.size;
      position[at] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace octavo
