// Strips of 32 rows, in pieces that stay in the first cache: each piece is quantized along its rows
// and, where that is wanted too, down its columns, so that memory is read once.
#include "octavo/backend/cpu/mx_driver.h"

#include <algorithm>

#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/base/thread_pool.h"
#include "octavo/round/encode.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kPerThread = 32 * 1024;  // fewer elements than this are not worth a thread
constexpr std::int64_t kBothCols = 128;         // of a piece whose columns are quantized as well
constexpr std::int64_t kRowPiece = 8192;        // of a row alone: much longer than its setting up

bool is_plain(const QuantizeJob& job) {
  const ScaleSpec& scale = job.scale;
  return scale.format == ScaleFormat::e8m0 && scale.non_finite == NonFinite::poison &&
         (scale.arith == Arith::octavo || scale.arith == Arith::divide) && scale.margin == 0 &&
         scale.min_amax == 0.0F && job.policy == AmaxPolicy::max && job.given_amax == nullptr &&
         job.given_inverse == nullptr && job.counts == nullptr && !job.hadamard_rowwise &&
         !job.hadamard_columnwise && !job.source.is_quantized() &&
         job.encode.rounding == Rounding::nearest_even && job.encode.overflow == Overflow::saturate;
}

bool fits(const QuantizedMatrix& to) {
  return !to.wanted() || (to.tile == Tile{1, kMxBlock} && to.scales.col_stride == 1 &&
                          (to.codes.packed || is_contiguous(to.codes)));
}

}  // namespace

bool quantize_mx(const Isa& isa, const Exec& exec, const QuantizeJob& job) {
  const Matrix& values = job.source.values;
  const QuantizedMatrix &rowwise = job.rowwise, &columnwise = job.columnwise;
  if (isa.mx == nullptr || !is_plain(job) || !fits(rowwise) || !fits(columnwise)) return false;
  if (!is_contiguous(values) || columnwise.codes.packed) return false;
  const Format& format = rowwise.wanted() ? rowwise.codes.format : columnwise.codes.format;
  MxBlocks blocks{.format = format, .source = values.dtype, .rule = job.scale.rule};
  if (format.has_nan())
    blocks.poison_code = static_cast<std::uint8_t>(nan_input_code(format, job.encode, false));
  const MxKernels kernels = isa.mx(blocks);
  if (kernels.rows == nullptr || (columnwise.wanted() && kernels.columns == nullptr)) return false;

  // Rows that follow each other without a gap, in whole blocks, are one long row.
  const auto follows = [&](const Matrix& matrix, std::int64_t row_bytes) {
    return matrix.rows <= 1 || matrix.row_pitch == row_bytes;
  };
  std::int64_t rows = values.rows, cols = values.cols;
  if (!columnwise.wanted() && !rowwise.codes.packed && cols % kMxBlock == 0 &&
      follows(values, cols * bytes_of(values)) && follows(rowwise.codes, cols) &&
      follows(rowwise.scales, cols / kMxBlock)) {
    cols *= rows;
    rows = 1;
  }
  const std::int64_t wide = columnwise.wanted() ? kBothCols : kRowPiece;
  const auto row_piece = [&](std::int64_t row, std::int64_t col, std::int64_t n) {
    auto* scales = reinterpret_cast<std::uint8_t*>(element(rowwise.scales, row, col / kMxBlock));
    if (!rowwise.codes.packed) {
      auto* codes = reinterpret_cast<std::uint8_t*>(element(rowwise.codes, row, col));
      return kernels.rows(blocks, element(values, row, col), codes, scales, n);
    }
    alignas(64) std::uint8_t staged[kRowPiece];
    kernels.rows(blocks, element(values, row, col), staged, scales, n);
    scatter(rowwise.codes, row, col, n, reinterpret_cast<const std::byte*>(staged));
  };
  const auto strip = [&](std::int64_t row, std::int64_t count) {
    for (std::int64_t col = 0; col < cols; col += wide) {
      const std::int64_t n = std::min(wide, cols - col);
      if (rowwise.wanted())
        for (std::int64_t r = row; r < row + count; ++r) row_piece(r, col, n);
      if (columnwise.wanted()) {
        kernels.columns(
            blocks, element(values, row, col), values.row_pitch, count, n,
            reinterpret_cast<std::uint8_t*>(element(columnwise.codes, col, row)),
            columnwise.codes.row_pitch,
            reinterpret_cast<std::uint8_t*>(element(columnwise.scales, col, row / kMxBlock)),
            columnwise.scales.row_pitch);
      }
    }
  };
  // Rows alone can be split anywhere; a single long row is one unit, and split by columns below.
  const std::int64_t high = columnwise.wanted() ? kMxBlock : 1;
  const std::int64_t strips = (rows + high - 1) / high;
  const std::int64_t threads =
      std::max<std::int64_t>(1, std::min<std::int64_t>(exec.threads, rows * cols / kPerThread));
  if (strips < threads && !columnwise.wanted()) {
    const std::int64_t per_row = (cols + kRowPiece - 1) / kRowPiece, units = rows * per_row;
    const int parts = static_cast<int>(std::min(units, threads * 4));
    parallel_for(parts, static_cast<int>(threads), [&](int part) {
      for (std::int64_t u = units * part / parts; u < units * (part + 1) / parts; ++u)
        row_piece(u / per_row, u % per_row * kRowPiece,
                  std::min(kRowPiece, cols - u % per_row * kRowPiece));
    });
    return true;
  }
  const int parts = static_cast<int>(threads <= 1 ? 1 : std::min(strips, threads * 4));
  parallel_for(parts, static_cast<int>(threads), [&](int part) {
    const std::int64_t last = std::min(rows, strips * (part + 1) / parts * high);
    for (std::int64_t row = strips * part / parts * high; row < last; row += high)
      strip(row, std::min(high, last - row));
  });
  return true;
}

}  // namespace octavo::cpu
