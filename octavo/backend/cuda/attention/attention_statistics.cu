// Statistics of ranges of rows, with the bits of reference: sums of squares along rows, along
// columns and over rows, each in the order of a plain loop.
#include "octavo/backend/attention_job.h"
#include "octavo/backend/cuda/attention/columns_in_order.cuh"
#include "octavo/backend/cuda/quantize/quantize_source.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

struct RowSquares {
  double squares, amax;
};

struct Plan {
  AttentionStatisticsJob job;
  RowSquares* rows;  // [batches, heads, rows]
  double* columns;   // [batches, heads, ranges, cols]
  std::int64_t ranges, across;
};

// NaN compares above everything.
__device__ __forceinline__ bool is_larger(double a, double b) { return b == b && !(a <= b); }

struct Range {
  std::int64_t head, first, last;
};
__device__ __forceinline__ Range range_of(const Plan& plan, std::int64_t at) {
  const AttentionStatisticsJob& job = plan.job;
  const std::int64_t rows = job.of.first.rows(), head = at / plan.ranges,
                     first = at % plan.ranges * job.rows_per_range;
  const std::int64_t length = job.lengths != nullptr ? job.lengths[head / job.heads] : rows;
  return {head, first, max(first, min(length, min(first + job.rows_per_range, rows)))};
}

// A warp has 32 rows; each lane adds one of them up.
constexpr int kRowThreads = 128;
__global__ void __launch_bounds__(kRowThreads)
    row_squares_kernel(const __grid_constant__ Plan plan) {
  __shared__ double tiles[kRowThreads / 32][32][33];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  auto& tile = tiles[warp];
  const AttentionStatisticsJob& job = plan.job;
  const std::int64_t rows = job.of.first.rows(), cols = job.of.first.cols(),
                     groups = (rows + 31) / 32;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * (kRowThreads / 32) + warp;
  if (at >= job.batches * job.heads * groups) return;
  const std::int64_t head = at / groups, first = at % groups * 32;
  const std::int64_t length = job.lengths != nullptr ? job.lengths[head / job.heads] : rows;
  const GemmOperand of = job.of.at(head / job.heads, head % job.heads);
  RowSquares mine{0.0, 0.0};
  for (std::int64_t col = 0; col < cols; col += 32) {
    __syncwarp();
    for (int i = 0; i < 32; ++i) {
      double number = 0.0;
      if (first + i < min(length, rows) && col + lane < cols)
        number = of.is_quantized() ? dequantized(of.quantized, first + i, col + lane)
                                   : load_value(of.values, first + i, col + lane);
      tile[i][lane] = number;
    }
    __syncwarp();
#pragma unroll 8
    for (int d = 0; d < 32; ++d) {
      const double number = tile[lane][d];
      mine.squares += number * number;
      if (is_larger(fabs(number), mine.amax)) mine.amax = fabs(number);
    }
  }
  if (first + lane < rows) plan.rows[head * rows + first + lane] = mine;
}

__global__ void __launch_bounds__(kOrderedThreads)
    column_squares_kernel(const __grid_constant__ Plan plan) {
  const std::int64_t at = blockIdx.x / plan.across, cols = plan.job.of.first.cols(),
                     first_col = blockIdx.x % plan.across * kOrderedColumns;
  const Range range = range_of(plan, at);
  const double sum =
      sum_in_order(plan.job.of.at(range.head / plan.job.heads, range.head % plan.job.heads),
                   range.first, range.last, first_col, [](double x) { return x * x; });
  const std::int64_t col = first_col + threadIdx.x;
  if (threadIdx.x < kOrderedColumns && col < cols) plan.columns[at * cols + col] = sum;
}

// One warp for a range.
__global__ void __launch_bounds__(32) finish_statistics_kernel(const __grid_constant__ Plan plan) {
  __shared__ RowSquares tile[64];
  const std::int64_t at = blockIdx.x, cols = plan.job.of.first.cols();
  const Range range = range_of(plan, at);
  const RowSquares* const rows = plan.rows + range.head * plan.job.of.first.rows();
  AttentionStatistics result{.row = range.first};
  for (std::int64_t row = range.first; row < range.last; row += 64) {
    const int count = static_cast<int>(min(std::int64_t{64}, range.last - row));
    __syncwarp();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += 32) tile[i] = rows[row + i];
    __syncwarp();
    for (int i = 0; i < count; ++i) {
      result.mean_squares += tile[i].squares;
      if (is_larger(tile[i].amax, result.amax)) result.amax = tile[i].amax;
      if (!is_larger(tile[i].squares, result.row_squares)) continue;
      result.row = row + i;
      result.row_squares = tile[i].squares;
    }
  }
  double largest = 0.0;
  for (std::int64_t col = threadIdx.x; col < cols; col += 32)
    if (is_larger(plan.columns[at * cols + col], largest)) largest = plan.columns[at * cols + col];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const double other = __shfl_xor_sync(0xFFFFFFFFu, largest, step);
    if (is_larger(other, largest)) largest = other;
  }
  if (threadIdx.x != 0) return;
  const auto count = static_cast<double>(range.last - range.first);
  result.channel_squares = largest;
  if (count > 0.0) {
    result.mean_squares /= count;
    result.channel_squares /= count;
  }
  plan.job.result[at] = result;
}

}  // namespace

void attention_statistics(const Exec& exec, const AttentionStatisticsJob& job) {
  const Scope scope(exec);
  const std::int64_t rows = job.of.first.rows(), cols = job.of.first.cols(),
                     heads = job.batches * job.heads;
  const std::int64_t ranges = rows > 0 ? (rows + job.rows_per_range - 1) / job.rows_per_range : 0,
                     all = heads * ranges;
  if (all == 0) return;
  const Exec inner = without_workspace(exec);
  const Scratch of_rows(inner, static_cast<std::size_t>(heads * rows) * sizeof(RowSquares)),
      of_columns(inner, static_cast<std::size_t>(all * cols) * sizeof(double));
  const Plan plan{.job = job,
                  .rows = of_rows.as<RowSquares>(),
                  .columns = of_columns.as<double>(),
                  .ranges = ranges,
                  .across = (cols + kOrderedColumns - 1) / kOrderedColumns};
  const std::int64_t warps = heads * ((rows + 31) / 32);
  row_squares_kernel<<<blocks_for(warps, kRowThreads / 32), kRowThreads, 0, stream_of(exec)>>>(
      plan);
  OCTAVO_CUDA_LAUNCHED("row_squares_kernel");
  if (cols > 0) {
    column_squares_kernel<<<blocks_for(all * plan.across, 1), kOrderedThreads, 0,
                            stream_of(exec)>>>(plan);
    OCTAVO_CUDA_LAUNCHED("column_squares_kernel");
  }
  finish_statistics_kernel<<<blocks_for(all, 1), 32, 0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("finish_statistics_kernel");
}

}  // namespace octavo::cuda
