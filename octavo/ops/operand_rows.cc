#include <algorithm>

#include "octavo/ops/operand_rows_internal.h"

namespace octavo {
namespace {

Tensor rows_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  return Tensor::adopt(rows_of(tensor.view(), first, count), tensor.owner());
}

}  // namespace

View rows_of(View matrix, std::int64_t first, std::int64_t count) {
  matrix.data = static_cast<std::byte*>(matrix.data) + first * matrix.strides[0];
  matrix.shape[0] = count;
  return matrix;
}

QuantizedTensor rows_of(const QuantizedTensor& matrix, std::int64_t first, std::int64_t count) {
  QuantizedTensor part = matrix;
  part.shape[0] = count;
  part.columnwise = {};
  part.scaling.columnwise = false;
  part.scaling.encode.first_index += static_cast<std::uint64_t>(first * matrix.shape[1]);
  part.rowwise.codes = rows_of(matrix.rowwise.codes, first, count);
  if (matrix.rowwise.scales.shape().rank() == 0) return part;
  const std::int64_t tile = tile_extent(matrix.scaling.tile.rows, matrix.shape[0]);
  part.rowwise.scales = rows_of(matrix.rowwise.scales, first / tile, tile_count(tile, count));
  return part;
}

std::int64_t rows_of_a_tile(const Scaling* scaling, std::int64_t rows) {
  if (scaling == nullptr || scaling->tile == Tile{0, 0}) return 1;
  return std::min(scaling->tile.rows, rows);
}

OperandRows::OperandRows(const Operand& matrix, std::int64_t first, std::int64_t count)
    : is_quantized_(matrix.quantized() != nullptr) {
  if (is_quantized_)
    quantized_ = rows_of(*matrix.quantized(), first, count);
  else
    values_ = rows_of(matrix.values(), first, count);
}

}  // namespace octavo
