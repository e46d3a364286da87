// Sums over the rows of a matrix, a column each, in the order of rows: the bits that a plain loop
// gives. A block has 32 columns; its warps load rows ahead of the first one, which adds them.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/quantize/quantize_source.cuh"

namespace octavo::cuda {

inline constexpr int kOrderedColumns = 32, kOrderedThreads = 256;

// Every thread of a block of kOrderedThreads calls it; lanes of the first warp get the sums of
// `term(value)` over rows [first, last) of columns first_col + lane, others nothing.
template <typename Term>
__device__ double sum_in_order(const GemmOperand& of, std::int64_t first, std::int64_t last,
                               std::int64_t first_col, const Term& term) {
  constexpr int kRows = 64, kEach = kRows * kOrderedColumns / kOrderedThreads;
  __shared__ double tile[kRows][kOrderedColumns];
  const int lane = static_cast<int>(threadIdx.x) % kOrderedColumns,
            line = static_cast<int>(threadIdx.x) / kOrderedColumns;
  const std::int64_t col = first_col + lane;
  const auto number_at = [&](std::int64_t row) {
    if (row >= last || col >= of.cols()) return 0.0;
    return of.is_quantized() ? dequantized(of.quantized, row, col)
                             : load_value(of.values, row, col);
  };
  double next[kEach], sum = 0.0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) next[i] = number_at(first + line + i * (kRows / kEach));
  for (std::int64_t row = first; row < last; row += kRows) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; ++i) tile[line + i * (kRows / kEach)][lane] = next[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kEach; ++i) next[i] = number_at(row + kRows + line + i * (kRows / kEach));
    if (line != 0) continue;
    const int count = static_cast<int>(min(static_cast<std::int64_t>(kRows), last - row));
#pragma unroll 8
    for (int i = 0; i < count; ++i) sum += term(tile[i][lane]);
  }
  return sum;
}

}  // namespace octavo::cuda
