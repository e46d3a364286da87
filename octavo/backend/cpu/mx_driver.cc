// Rows alone go to the kernel in long pieces. Where columns are wanted too, strips of 64 rows are
// worked on in pieces that stay in the second cache, so that memory is read once.
#include "octavo/backend/cpu/mx_driver.h"

#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/share.h"
#include "octavo/round/encode.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kStripRows = 64;    // rows whose columns are quantized as well,
constexpr std::int64_t kBothPiece = 512;   // in pieces of so many columns,
constexpr std::int64_t kColumnPiece = 64;  // of which so many at a time
constexpr std::int64_t kLine = 64;         // bytes of a line of the cache
constexpr std::int64_t kRowPiece = 8192;   // of a row alone: much longer than its setting up

bool is_plain(const QuantizeJob& job) {
  const ScaleSpec& scale = job.scale;
  return scale.format == ScaleFormat::e8m0 && scale.non_finite == NonFinite::poison &&
         (scale.arith == Arith::octavo || scale.arith == Arith::divide) && scale.margin == 0 &&
         scale.min_amax == 0.0F && job.policy == AmaxPolicy::max && job.given_amax == nullptr &&
         job.given_inv_scale == nullptr && job.counts == nullptr && !job.hadamard_rowwise &&
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
  const auto row_piece = [&](const std::byte* from, std::int64_t row, std::int64_t col,
                             std::int64_t n) {
    auto* scales = reinterpret_cast<std::uint8_t*>(element(rowwise.scales, row, col / kMxBlock));
    if (!rowwise.codes.packed) {
      auto* codes = reinterpret_cast<std::uint8_t*>(element(rowwise.codes, row, col));
      return kernels.rows(blocks, from, codes, scales, n);
    }
    alignas(64) std::uint8_t staged[kRowPiece];
    kernels.rows(blocks, from, staged, scales, n);
    scatter(rowwise.codes, row, col, n, reinterpret_cast<const std::byte*>(staged));
  };
  // A piece of a strip is copied, and both its rows and its columns are read from there; codes of
  // columns are collected until they fill whole lines of the transpose. Without the copies pitches
  // that are powers of two would have everything want the same few places of the caches.
  const auto strip = [&](std::int64_t row, std::int64_t count) {
    const int bytes = bytes_of(values);
    const std::int64_t pitch = kBothPiece * bytes + kLine;
    alignas(kLine) std::byte copy[kStripRows * (kBothPiece * 4 + kLine)];
    alignas(kLine) std::uint8_t collected[kColumnPiece * kStripRows];
    for (std::int64_t start = 0; start < cols; start += kBothPiece) {
      const std::int64_t wide = std::min(kBothPiece, cols - start);
      for (std::int64_t r = 0; r < count; ++r) {
        std::memcpy(copy + r * pitch, element(values, row + r, start),
                    static_cast<std::size_t>(wide * bytes));
        if (rowwise.wanted()) row_piece(copy + r * pitch, row + r, start, wide);
      }
      for (std::int64_t c = 0; c < wide; c += kColumnPiece) {
        const std::int64_t n = std::min(kColumnPiece, wide - c), col = start + c;
        for (std::int64_t block = 0; block < count; block += kMxBlock) {
          auto* scales = reinterpret_cast<std::uint8_t*>(
              element(columnwise.scales, col, (row + block) / kMxBlock));
          kernels.columns(blocks, copy + block * pitch + c * bytes, pitch,
                          std::min(kMxBlock, count - block), n, collected + block, kStripRows,
                          scales, columnwise.scales.row_pitch);
        }
        for (std::int64_t i = 0; i < n; ++i)
          std::memcpy(element(columnwise.codes, col + i, row), collected + i * kStripRows,
                      static_cast<std::size_t>(count));
      }
    }
  };
  const int threads = useful_threads(exec, rows * cols);
  if (columnwise.wanted()) {
    share_units((rows + kStripRows - 1) / kStripRows, threads, [&](std::int64_t u) {
      strip(u * kStripRows, std::min(kStripRows, rows - u * kStripRows));
    });
  } else {
    const std::int64_t per_row = (cols + kRowPiece - 1) / kRowPiece;
    share_units(rows * per_row, threads, [&](std::int64_t u) {
      const std::int64_t row = u / per_row, col = u % per_row * kRowPiece;
      row_piece(element(values, row, col), row, col, std::min(kRowPiece, cols - col));
    });
  }
  return true;
}

}  // namespace octavo::cpu
