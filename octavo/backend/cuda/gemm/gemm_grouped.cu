// Grouped GEMM: writes the table of groups, one product each, to device memory.
#include <algorithm>
#include <vector>

#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/hopper/pdl.cuh"
#include "octavo/backend/cuda/hopper/pdl_launch.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

// Groups passed as kernel arguments, which a graph captures: host memory of the caller may be gone
// when the graph runs.
constexpr int kAtOnce = 96;
struct SomeGroups {
  PlanGroup of[kAtOnce];
};

__global__ void write_groups(const __grid_constant__ SomeGroups some, int count, PlanGroup* to) {
  pdl_wait();
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) to[i] = some.of[i];
}

bool tiles_fit(const GemmOperand& operand, std::int64_t first) {
  if (!operand.is_quantized()) return true;
  const std::int64_t each = tile_extent(operand.quantized.tile.rows, operand.rows());
  return each >= operand.rows() || first % each == 0;
}

}  // namespace

bool groups_fit(const GemmJob& job) {
  return std::all_of(job.groups, job.groups + job.group_count, [&](const GemmGroup& group) {
    return tiles_fit(job.a, group.a_row) && tiles_fit(job.b, group.b_row);
  });
}

PlanGroups::PlanGroups(const Exec& exec, const GemmJob& job, const GemmShape& shape, bool swap_ab,
                       Even even) {
  const std::int64_t cols = job.out.cols;
  std::vector<PlanGroup> made;
  for (std::int64_t i = 0; i < job.group_count; ++i) {
    const GemmGroup& of = job.groups[i];
    if (of.rows == 0) continue;
    const auto narrow = [](std::int64_t number) { return static_cast<std::int32_t>(number); };
    const std::int64_t row = swap_ab ? of.b_row : of.a_row, rows = swap_ab ? cols : of.rows,
                       col = swap_ab ? of.a_row : of.b_row, width = swap_ab ? of.rows : cols;
    const std::int64_t row_out = swap_ab ? 0 : of.out_row, col_out = swap_ab ? of.out_row : 0;
    const std::int64_t rows_before = even.rows ? row % 2 : 0, cols_before = even.cols ? col % 2 : 0,
                       unit_rows = tile_count(shape.unit_rows(), rows_before + rows);
    made.push_back({.row = narrow(row - rows_before),
                    .col = narrow(col - cols_before),
                    .row_begin = narrow(row),
                    .row_end = narrow(row + rows),
                    .col_begin = narrow(col),
                    .col_end = narrow(col + width),
                    .row_shift = narrow(row_out - row),
                    .col_shift = narrow(col_out - col),
                    .first_unit = narrow(units_),
                    .unit_rows = narrow(unit_rows)});
    units_ += unit_rows * tile_count(shape.unit_cols(), cols_before + width);
  }
  memory_.emplace(without_workspace(exec), made.size() * sizeof(PlanGroup));
  for (std::size_t first = 0; first < made.size(); first += kAtOnce) {
    const std::size_t count = std::min<std::size_t>(kAtOnce, made.size() - first);
    SomeGroups some{};
    std::copy_n(made.begin() + static_cast<std::ptrdiff_t>(first), count, some.of);
    launch_pdl(exec, 1, kAtOnce, write_groups, some, static_cast<int>(count),
               memory_->as<PlanGroup>() + first);
  }
  count_ = static_cast<std::int32_t>(made.size());
}

const PlanGroup* PlanGroups::on_device() const { return memory_->as<PlanGroup>(); }

}  // namespace octavo::cuda
