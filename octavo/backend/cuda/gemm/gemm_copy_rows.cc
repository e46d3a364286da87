// Copies operands whose rows TMA cannot read into dense rows.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

int bytes_each(const Matrix& matrix) { return matrix.dtype == DType::code ? 1 : 2; }

}  // namespace

bool has_plain_rows(const Matrix& matrix) {
  const int each = bytes_each(matrix);
  return (matrix.cols <= 1 || matrix.col_stride == each) &&
         (matrix.rows <= 1 || matrix.row_pitch >= matrix.cols * each);
}

void copy_rows(const Exec& exec, const Matrix& from, const Matrix& to) {
  if (!has_plain_rows(from)) {
    Matrix transposed = from;  // the transpose of this view is the wanted matrix
    std::swap(transposed.rows, transposed.cols);
    std::swap(transposed.row_pitch, transposed.col_stride);
    return transpose_values(exec, transposed, to);
  }
  const std::int64_t row_bytes = from.cols * bytes_each(from);
  OCTAVO_CUDA_CHECK(cudaMemcpy2DAsync(
      to.data, static_cast<std::size_t>(to.row_pitch), from.data,
      static_cast<std::size_t>(std::max(from.row_pitch, row_bytes)),  // a single row: any pitch
      static_cast<std::size_t>(row_bytes), static_cast<std::size_t>(from.rows),
      cudaMemcpyDeviceToDevice, stream_of(exec)));
}

}  // namespace octavo::cuda
