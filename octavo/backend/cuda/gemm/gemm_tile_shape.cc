#include "octavo/backend/cuda/gemm/gemm_tile_shape.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace octavo::cuda {
namespace {

bool changes_along_k(const GemmOperand& operand) {
  return tile_extent(operand.quantized.tile.cols, operand.cols()) < operand.cols();
}

ScaleKind kind_of(const GemmOperand& rows, const GemmOperand& cols, const GemmShape& shape) {
  if (!changes_along_k(rows) && !changes_along_k(cols)) return ScaleKind::at_end;
  const bool one_row = same_within(rows, 64),  // rows of a warpgroup
      one_col = same_within(cols, shape.group_cols());
  return one_col ? ScaleKind::by_row : one_row ? ScaleKind::by_column : ScaleKind::by_element;
}

// M and N of the result; for a grouped GEMM, the mean M of a group.
struct ResultSize {
  std::int64_t m = 0, n = 0;
};

ResultSize size_of_one(const GemmJob& job) {
  if (job.group_count == 0) return {job.a.rows(), job.b.rows()};
  std::int64_t rows = 0, groups = 0;
  for (std::int64_t i = 0; i < job.group_count; ++i) {
    rows += job.groups[i].rows;
    groups += job.groups[i].rows > 0 ? 1 : 0;
  }
  return {groups > 0 ? (rows + groups - 1) / groups : 0, job.out.cols};
}

GemmElement element_of(const GemmJob& job) {
  const DType dtype = job.a.quantized.codes.dtype;
  return dtype == DType::bf16 ? GemmElement::bf16
                              : (dtype == DType::f16 ? GemmElement::f16 : GemmElement::fp8);
}

// Approximate cycles per K block, times the number of waves of units over all clusters. Stream-K
// shortens the last wave where that pays (stream_k_schedule.h), at a total cost of a sixteenth.
// Small tiles (kNarrow) are for a single wave, where large tiles would leave most SMs idle; in more
// waves they are bound by reads from L2.
double cycles_of_block(const GemmShape& shape, std::int64_t rows, std::int64_t cols,
                       std::int64_t processors) {
  const double units = static_cast<double>(tile_count(shape.unit_rows(), rows)) *
                       static_cast<double>(tile_count(shape.unit_cols(), cols)),
               clusters = static_cast<double>(processors / shape.blocks);
  const double whole = std::ceil(units / clusters),
               stream_k_units = std::max(1.0, units / clusters * (17.0 / 16.0));
  if (shape == kNarrow && whole > 1.0) return std::numeric_limits<double>::infinity();
  return (shape.uses_stream_k() ? std::min(whole, stream_k_units) : whole) * shape.block_cycles;
}

// Small M (or N): all of its rows are the columns of a plan, and the other operand, which is read
// from global memory, is split finely.
const GemmShape& shape_for_small_m(std::int64_t smaller, std::int64_t larger, std::int64_t products,
                                   std::int64_t processors) {
  if (smaller > kSlim.cols) return kNarrow;
  return tile_count(kSlim.rows(), larger) * products <= processors ? kSlim : kSlimTall;
}

}  // namespace

bool same_within(const GemmOperand& operand, std::int64_t side) {
  const std::int64_t rows = tile_extent(operand.quantized.tile.rows, operand.rows());
  return rows >= operand.rows() || rows % side == 0;
}

GemmTiling tiling_of(const GemmJob& job, const GemmShape& shape, bool swap_ab) {
  return {.shape = shape,
          .swap_ab = swap_ab,
          .scales = swap_ab ? kind_of(job.b, job.a, shape) : kind_of(job.a, job.b, shape)};
}

GemmTiling tiling_in(const GemmJob& job, const GemmShape& shape) {
  const auto [m, n] = size_of_one(job);
  return tiling_of(job, shape, m <= n && m <= shape.cols);
}

// Where neither M nor N is small: the shape with the fewest cycles. Scales that change along K cost
// least where columns share them.
GemmTiling choose_tiling(const GemmJob& job, std::int64_t processors) {
  const auto [m, n] = size_of_one(job);
  if (std::min(m, n) <= kNarrow.cols)
    return tiling_of(job,
                     shape_for_small_m(std::min(m, n), std::max(m, n),
                                       std::max<std::int64_t>(job.group_count, 1), processors),
                     m <= n);
  const ScaleKind straight = tiling_of(job, kWide, false).scales,
                  around = tiling_of(job, kWide, true).scales;
  GemmTiling best;
  double least = std::numeric_limits<double>::infinity();
  for (const GemmShape& shape : {kWide, kTall, kMedium, kNarrow})
    for (const bool swap_ab : {false, true}) {
      if (straight != around && swap_ab != (around == ScaleKind::by_row)) continue;
      if (job.group_count > 0 && shape != kWide) continue;  // a grouped GEMM has many tiles
      const GemmTiling tiling = tiling_of(job, shape, swap_ab);
      if (!has_kernel(element_of(job), shape, tiling.scales)) continue;
      const double cycles = swap_ab ? cycles_of_block(shape, n, m, processors)
                                    : cycles_of_block(shape, m, n, processors);
      if (cycles >= least) continue;
      least = cycles;
      best = tiling;
    }
  return best;
}

}  // namespace octavo::cuda
