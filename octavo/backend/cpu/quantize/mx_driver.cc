// The MX driver. Rowwise copies go to the kernel in long pieces. Where a columnwise copy is wanted,
// 64 rows (two panels) are processed in pieces that stay in L1, so that memory is read once.
#include "octavo/backend/cpu/quantize/mx_driver.h"

#include <algorithm>
#include <cstring>

#include "octavo/backend/cpu/matrix_io.h"
#include "octavo/backend/cpu/work_split.h"
#include "octavo/format/named_formats.h"
#include "octavo/round/encode.h"
#include "octavo/scale/fit.h"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kLine = 64;  // bytes of a cache line
constexpr std::int64_t kPanelRows =
    64;  // rows quantized together (two panels): 64 codes of a column fill a cache line
constexpr std::int64_t kRowPiece =
    8192;  // elements of a row per call: much more work than its setup

std::uint8_t* bytes_at(const Matrix& matrix, std::int64_t row, std::int64_t col) {
  return reinterpret_cast<std::uint8_t*>(element(matrix, row, col));
}

// Transformer Engine's scales are those of rceil, except for blocks whose amax is not finite, which
// it does not poison, and for one amax whose byte is 1: v = RN(amax / max) is subnormal there, and
// may have been rounded (docs/numerics/peer-arith.md).
bool is_te(const ScaleSpec& scale) {
  return scale.arith == Arith::te && scale.rule == ScaleRule::rceil;
}
bool has_te_scales(const QuantizedMatrix& to) {
  for (std::int64_t row = 0; row < to.scales.rows; ++row) {
    const std::uint8_t* bytes = bytes_at(to.scales, row, 0);
    std::uint8_t others = 0;
    for (std::int64_t i = 0; i < to.scales.cols; ++i)
      others |= static_cast<std::uint8_t>((bytes[i] == 1) | (bytes[i] == 255));
    if (others != 0) return false;
  }
  return true;
}

bool is_plain(const QuantizeJob& job) {
  const ScaleSpec& scale = job.scale;
  const bool is_own = scale.arith == Arith::octavo || scale.arith == Arith::divide;
  return scale.format == ScaleFormat::e8m0 && scale.margin == 0 &&
         (is_te(scale) || (is_own && scale.non_finite == NonFinite::poison)) &&
         scale.min_amax == 0.0F && job.given_amax == nullptr && job.given_inv_scale == nullptr &&
         job.counts == nullptr && !job.hadamard_rowwise && !job.hadamard_columnwise &&
         !job.source.is_quantized() && job.encode.rounding == Rounding::nearest_even &&
         job.encode.overflow == Overflow::saturate;
}

// The rank that the percentile of a block is, 1 for the largest.
int rank_of_block(const QuantizeJob& job) {
  return static_cast<int>(kMxBlock - percentile_rank(kMxBlock, job.percentile));
}

bool takes_policy(const Isa& isa, const QuantizeJob& job) {
  if (job.policy == AmaxPolicy::max) return true;
  if (job.scale.arith != Arith::octavo || job.columnwise.wanted()) return false;
  if (job.policy == AmaxPolicy::mse) return isa.mx_searches && job.rowwise.codes.format == e2m1fn;
  return job.policy == AmaxPolicy::percentile && isa.mx_ranks && rank_of_block(job) <= kMaxRanks &&
         job.source.values.cols % kMxBlock == 0;
}

bool fits(const QuantizedMatrix& to) {
  return !to.wanted() || (to.tile == Tile{1, kMxBlock} && to.scales.col_stride == 1 &&
                          (to.codes.packed || is_contiguous(to.codes)));
}

}  // namespace

bool quantize_mx(const Isa& isa, const Exec& exec, const QuantizeJob& job) {
  const Matrix& values = job.source.values;
  const QuantizedMatrix &rowwise = job.rowwise, &columnwise = job.columnwise;
  if (isa.mx == nullptr || !is_plain(job) || !takes_policy(isa, job) || !fits(rowwise) ||
      !fits(columnwise))
    return false;
  const bool packs_both = columnwise.wanted() && rowwise.wanted() && rowwise.codes.packed;
  if (!is_contiguous(values) || columnwise.codes.packed || packs_both) return false;
  const Format& format = rowwise.wanted() ? rowwise.codes.format : columnwise.codes.format;
  MxBlocks blocks{.format = format,
                  .source = values.dtype,
                  .rule = job.scale.rule,
                  .searches = job.policy == AmaxPolicy::mse,
                  .ranks = job.policy == AmaxPolicy::percentile};
  if (format.has_nan())
    blocks.poison_code = static_cast<std::uint8_t>(nan_input_code(format, job.encode, false));
  const MxKernels kernels = isa.mx(blocks);
  const bool packs_itself =
      rowwise.codes.packed && format.bits() == 4 && kernels.packed_rows != nullptr;
  if (kernels.rows == nullptr || (columnwise.wanted() && kernels.panel == nullptr)) return false;

  // Contiguous rows of whole blocks are treated as one long row.
  const auto follows = [&](const Matrix& matrix, std::int64_t row_bytes) {
    return matrix.rows <= 1 || matrix.row_pitch == row_bytes;
  };
  std::int64_t rows = values.rows, cols = values.cols;
  if (!columnwise.wanted() && (!rowwise.codes.packed || packs_itself) && cols % kMxBlock == 0 &&
      follows(values, cols * bytes_of(values)) &&
      follows(rowwise.codes, packs_itself ? cols / 2 : cols) &&
      follows(rowwise.scales, cols / kMxBlock)) {
    cols *= rows;
    rows = 1;
  }
  const auto row_piece = [&](const std::byte* from, std::int64_t row, std::int64_t col,
                             std::int64_t n) {
    MxBlocks of = blocks;
    alignas(64) std::uint32_t ranked[kRowPiece / kMxBlock + 16];
    if (blocks.ranks) {
      const RankedTiles tiles{.values = from,
                              .dtype = values.dtype,
                              .cols = kMxBlock,
                              .tiles = n / kMxBlock,
                              .rank = rank_of_block(job)};
      isa.rank(tiles, ranked);
      std::fill_n(ranked + tiles.tiles, 16, 0u);
      of.ranked = ranked;
    }
    auto* scales = bytes_at(rowwise.scales, row, col / kMxBlock);
    if (!rowwise.codes.packed || packs_itself)
      return (packs_itself ? kernels.packed_rows : kernels.rows)(
          of, from, bytes_at(rowwise.codes, row, col), scales, n);
    alignas(64) std::uint8_t staged[kRowPiece];
    kernels.rows(of, from, staged, scales, n);
    scatter(rowwise.codes, row, col, n, reinterpret_cast<const std::byte*>(staged));
  };
  // Codes of columns are collected until they fill whole cache lines of the transpose.
  const auto panel = [&](std::int64_t row, std::int64_t count) {
    alignas(kLine) std::uint8_t collected[kMxPanelCols * kPanelRows];
    for (std::int64_t col = 0; col < cols; col += kMxPanelCols) {
      const std::int64_t n = std::min(kMxPanelCols, cols - col);
      for (std::int64_t down = 0; down < count; down += kMxBlock) {
        const bool rows_too = rowwise.wanted();
        const MxPanel one{
            .values = element(values, row + down, col),
            .row_pitch = values.row_pitch,
            .rows = std::min(kMxBlock, count - down),
            .cols = n,
            .codes = collected + down,
            .scales = bytes_at(columnwise.scales, col, (row + down) / kMxBlock),
            .code_pitch = kPanelRows,
            .scale_pitch = columnwise.scales.row_pitch,
            .row_codes = rows_too ? bytes_at(rowwise.codes, row + down, col) : nullptr,
            .row_scales = rows_too ? bytes_at(rowwise.scales, row + down, col / kMxBlock) : nullptr,
            .row_code_pitch = rowwise.codes.row_pitch,
            .row_scale_pitch = rowwise.scales.row_pitch};
        kernels.panel(blocks, one);
      }
      std::uint8_t* to = bytes_at(columnwise.codes, col, row);
      const std::uint8_t* from = collected;
      for (std::int64_t i = 0; i < n; ++i, to += columnwise.codes.row_pitch, from += kPanelRows) {
        // A line of known length is four stores, not a call of memcpy.
        if (count == kPanelRows) {
          std::memcpy(to, from, kPanelRows);
        } else {
          std::memcpy(to, from, static_cast<std::size_t>(count));
        }
      }
    }
  };
  const int threads = useful_threads(exec, rows * cols);
  if (columnwise.wanted()) {
    parallel_units((rows + kPanelRows - 1) / kPanelRows, threads, [&](std::int64_t u) {
      panel(u * kPanelRows, std::min(kPanelRows, rows - u * kPanelRows));
    });
  } else {
    const std::int64_t per_row = (cols + kRowPiece - 1) / kRowPiece;
    parallel_units(rows * per_row, threads, [&](std::int64_t u) {
      const std::int64_t row = u / per_row, col = u % per_row * kRowPiece;
      row_piece(element(values, row, col), row, col, std::min(kRowPiece, cols - col));
    });
  }
  // Where the scales may differ from Transformer Engine's, the general driver overwrites
  // everything.
  return !is_te(job.scale) || ((!rowwise.wanted() || has_te_scales(rowwise)) &&
                               (!columnwise.wanted() || has_te_scales(columnwise)));
}

}  // namespace octavo::cpu
