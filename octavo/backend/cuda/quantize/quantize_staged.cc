// Quantizations that stage their values in another form first, a row block at a time: codes with
// scales are dequantized to f32 (requantize), values of a columnwise copy are transposed. The
// staged form is in scratch of 32 MiB (64 where a tile needs it; L2 has 50), and is quantized from
// there by the best kernel for it; it never exists as a whole. Row blocks are whole tiles, so only
// the order of the work changes.
#include <algorithm>
#include <numeric>

#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr std::int64_t kRowBlockBytes = 32 << 20, kMaxBytes = 64 << 20;

Matrix rows_of(Matrix matrix, std::int64_t first, std::int64_t count) {
  matrix.data = static_cast<unsigned char*>(matrix.data) + first * matrix.row_pitch;
  matrix.rows = count;
  return matrix;
}
// `first` is a multiple of eight where codes are packed.
Matrix columns_of(Matrix matrix, std::int64_t first, std::int64_t count) {
  const std::int64_t bytes =
      matrix.packed ? first / 8 * matrix.format.bits() : first * matrix.col_stride;
  matrix.data = static_cast<unsigned char*>(matrix.data) + bytes;
  matrix.cols = count;
  return matrix;
}

// A tile that covers the whole extent covers every part of it.
QuantizedMatrix rows_of(QuantizedMatrix matrix, std::int64_t first, std::int64_t count) {
  if (tile_count(matrix.tile.rows, matrix.codes.rows) == 1) {
    matrix.tile.rows = 0;
  } else {
    matrix.scales =
        rows_of(matrix.scales, first / matrix.tile.rows, tile_count(matrix.tile.rows, count));
  }
  matrix.codes = rows_of(matrix.codes, first, count);
  return matrix;
}
QuantizedMatrix columns_of(QuantizedMatrix matrix, std::int64_t first, std::int64_t count) {
  if (tile_count(matrix.tile.cols, matrix.codes.cols) == 1) {
    matrix.tile.cols = 0;
  } else {
    matrix.scales =
        columns_of(matrix.scales, first / matrix.tile.cols, tile_count(matrix.tile.cols, count));
  }
  matrix.codes = columns_of(matrix.codes, first, count);
  return matrix;
}

// The granularity of parts of an extent: the tile, unless one tile covers the extent.
std::int64_t grain(std::int64_t tile, std::int64_t size) {
  return tile_count(tile, size) == 1 ? 1 : tile;
}

// The rows of a row block, out of `count` rows of `row_bytes` bytes, in multiples of `unit`; 0 if
// not even one unit fits.
std::int64_t row_block_of(std::int64_t count, std::int64_t unit, std::int64_t row_bytes) {
  if (unit > kMaxBytes || unit * row_bytes > kMaxBytes) return 0;
  return std::min(count, std::max<std::int64_t>(1, kRowBlockBytes / (unit * row_bytes)) * unit);
}

Matrix dense(const Scratch& memory, DType dtype, std::int64_t rows, std::int64_t cols) {
  const std::int64_t bytes = element_bytes(dtype, {});
  return {.data = memory.as<void>(),
          .dtype = dtype,
          .rows = rows,
          .cols = cols,
          .row_pitch = (cols * bytes + 15) / 16 * 16,
          .col_stride = bytes};
}

bool has_given_scale(const QuantizeJob& job) {
  return job.given_amax != nullptr || job.given_inv_scale != nullptr;
}

// Whether a row block can be quantized by itself, or the scale of its only tile is given.
bool can_be_split(const QuantizeJob& job, const QuantizedMatrix& to) {
  return tile_count(to.tile.rows, to.codes.rows) > 1 ||
         (has_given_scale(job) && tile_count(to.tile.cols, to.codes.cols) == 1);
}

}  // namespace

bool requantize_rows(const Exec& exec, const QuantizeJob& job) {
  const QuantizedMatrix &from = job.source.quantized, &to = job.rowwise;
  const std::int64_t rows = from.codes.rows, cols = from.codes.cols;
  const std::int64_t unit = std::lcm(grain(from.tile.rows, rows), grain(to.tile.rows, rows));
  const std::int64_t pitch = (cols * 4 + 15) / 16 * 16, row_block = row_block_of(rows, unit, pitch);
  if (row_block == 0 || (row_block < rows && !can_be_split(job, to))) return false;
  const Scratch memory(exec, static_cast<std::size_t>(row_block * pitch));
  const Exec inner = without_workspace(exec);
  for (std::int64_t first = 0; first < rows; first += row_block) {
    const std::int64_t count = std::min(row_block, rows - first);
    QuantizeJob part = job;
    part.source = {.values = dense(memory, DType::f32, count, cols)};
    part.rowwise = rows_of(to, first, count);
    part.columnwise = {};
    part.amax = nullptr;
    part.encode.first_index += static_cast<std::uint64_t>(first * cols);
    dequantize_matrix(inner, rows_of(from, first, count), part.source.values);
    quantize_matrix(inner, part);
  }
  return true;
}

bool requantize_amax(const Exec& exec, const QuantizeSource& source, AmaxOf of, float* amax) {
  const QuantizedMatrix& from = source.quantized;
  const std::int64_t rows = from.codes.rows, cols = from.codes.cols;
  const std::int64_t pitch = (cols * 4 + 15) / 16 * 16;
  const std::int64_t row_block = row_block_of(rows, grain(from.tile.rows, rows), pitch);
  if (row_block == 0) return false;
  const Scratch memory(exec, static_cast<std::size_t>(row_block * pitch));
  const Exec inner = without_workspace(exec);
  for (std::int64_t first = 0; first < rows; first += row_block) {
    const std::int64_t count = std::min(row_block, rows - first);
    const QuantizeSource part{.values = dense(memory, DType::f32, count, cols)};
    dequantize_matrix(inner, rows_of(from, first, count), part.values);
    amax_matrix(inner, part, of, amax);
  }
  return true;
}

bool quantize_transposed(const Exec& exec, const QuantizeJob& job) {
  const QuantizeSource& source = job.source;
  const QuantizedMatrix& to = job.columnwise;
  const std::int64_t rows = source.rows(), cols = source.cols();
  const bool quantized = source.is_quantized();
  const DType dtype = quantized ? DType::f32 : source.values.dtype;
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16) return false;
  const std::int64_t unit =
      std::lcm(std::lcm(std::int64_t{8}, grain(to.tile.rows, cols)),
               quantized ? grain(source.quantized.tile.cols, cols) : std::int64_t{1});
  const std::int64_t bytes = element_bytes(dtype, {}), pitch = (rows * bytes + 15) / 16 * 16;
  const std::int64_t row_block = row_block_of(cols, unit, pitch);
  if (row_block == 0 || (row_block < cols && !can_be_split(job, to))) return false;
  const std::int64_t upright = quantized ? rows * ((row_block * bytes + 15) / 16 * 16) : 0;
  const Scratch memory(exec, static_cast<std::size_t>(row_block * pitch));
  const Exec inner = without_workspace(exec);
  const Scratch values(inner, static_cast<std::size_t>(upright));
  for (std::int64_t first = 0; first < cols; first += row_block) {
    const std::int64_t count = std::min(row_block, cols - first);
    Matrix col_block;
    if (quantized) {
      col_block = dense(values, dtype, rows, count);
      dequantize_matrix(inner, columns_of(source.quantized, first, count), col_block);
    } else {
      col_block = columns_of(source.values, first, count);
    }
    QuantizeJob part = job;
    part.source = {.values = dense(memory, dtype, count, rows)};
    transpose_values(inner, col_block, part.source.values);
    part.rowwise = rows_of(to, first, count);
    part.columnwise = {};
    part.hadamard_rowwise = job.hadamard_columnwise;
    part.hadamard_columnwise = false;
    part.amax = nullptr;
    part.encode.first_index += static_cast<std::uint64_t>(first * rows);
    quantize_matrix(inner, part);
  }
  return true;
}

}  // namespace octavo::cuda
