// Heat map of the error over the tensor.

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/plot/plot.h"
#include "cli/plot/plot_quantize.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"

namespace octavo::cli {
namespace {

constexpr double kMapLeft = kPlotLeft + 60, kMapRight = 970, kShareLeft = 1000,
                 kShareRight = kPlotRight;
constexpr double kMapHeight = 340, kLowestCell = 8, kHighestCell = 30;
constexpr std::int64_t kMaxLines = 40, kMaxCells = 80;
constexpr int kLevels = 9;  // heat-0 to heat-8 in the style
// Minimum range of the colours, so that a uniform error is pale and noise shows no pattern.
constexpr double kLeastSpan = 8;

std::int64_t divided(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

ErrorMap::ErrorMap(const QuantizeReport& report) : report_(report) {
  const Parts parts = parts_of(report);
  const auto count = static_cast<std::int64_t>(parts.sums->size());
  const int rank = report.shape.rank();
  std::int64_t across = parts.are_tiles && report.tile_grid.rank() > 0
                            ? report.tile_grid[report.tile_grid.rank() - 1]
                            : 1;
  const bool along_last = report.scaling.axis == -1 || report.scaling.axis == rank - 1;
  std::int64_t rows_each = 1;
  columns_ = rank > 0 ? report.shape[rank - 1] : 1;
  if (parts.are_tiles && along_last && rank >= 2)
    rows_each = tile_extent(report.scaling.tile.rows, report.shape[rank - 2]);
  if (parts.are_tiles && !along_last) row_word_ = "tile row";
  std::int64_t all_rows = rows_each;
  if (across == count && across > kMaxCells) {
    wrapped_ = true;
    row_word_ = rank == 1 ? "element" : "column";
    const std::int64_t extent = tile_extent(report.scaling.tile.cols, columns_);
    all_rows = columns_;
    across = std::max(kMaxCells, divided(count, kMaxLines));
    columns_ = rows_each = across * extent;
  } else if (across > 0) {
    all_rows = rows_each * divided(count, across);
    if (parts.are_tiles && along_last && rank == 2) all_rows = report.shape[0];
  }
  if (count == 0 || across == 0) return;
  const std::int64_t rows = divided(count, across), per_line = divided(rows, kMaxLines),
                     per_cell = divided(across, kMaxCells);
  lines_.resize(static_cast<std::size_t>(divided(rows, per_line)));
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    // Only the last line of a wrapped row may be shorter.
    const std::int64_t parts_here = std::min(across, count - at * per_line * across);
    lines_[i].cells.resize(static_cast<std::size_t>(divided(parts_here, per_cell)));
    lines_[i].first_row = at * per_line * rows_each;
    lines_[i].end_row = std::min((at + 1) * per_line * rows_each, all_rows);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    Line& line = lines_[static_cast<std::size_t>(i / across / per_line)];
    const ErrorSums& part = (*parts.sums)[static_cast<std::size_t>(i)];
    line.cells[static_cast<std::size_t>(i % across / per_cell)] += part;
    line.all += part;
  }
  for (const Line& line : lines_) {
    for (const ErrorSums& cell : line.cells) {
      has_none_ |= cell.count == 0;
      const double error = cell.relative_l2();
      if (error == 0 || !std::isfinite(error)) continue;
      least_ = least_ == 0 ? error : std::min(least_, error);
      most_ = std::max(most_, error);
    }
  }
  most_ = std::max(most_, least_ * kLeastSpan);
  cell_width_ = (kMapRight - kMapLeft) / static_cast<double>(lines_[0].cells.size());
  cell_height_ =
      std::clamp(kMapHeight / static_cast<double>(lines_.size()), kLowestCell, kHighestCell);
}

double ErrorMap::height() const { return 96 + cell_height_ * static_cast<double>(lines_.size()); }

std::string ErrorMap::row_name(const Line& line) const {
  if (line.end_row - line.first_row <= 1) return formatted("{} {}", row_word_, line.first_row);
  return formatted("{}s {} to {}", row_word_, line.first_row, line.end_row - 1);
}

// -1: nothing finite in it.
int ErrorMap::level(const ErrorSums& cell) const {
  if (cell.count == 0) return -1;
  const double error = cell.relative_l2();
  if (error == 0 || most_ == 0) return 0;
  const double place = std::log(error / least_) / std::log(most_ / least_);
  return std::clamp(static_cast<int>(place * kLevels), 0, kLevels - 1);
}

void ErrorMap::draw_legend(Svg& svg, double y) const {
  if (has_none_) {
    svg.rect(kMapLeft, y - 11, 26, 12, "heat-none");
    svg.text(kMapLeft + 34, y, "nothing finite", "small");
  }
  constexpr double kBox = 26;
  const double left = kMapRight - kBox * kLevels;
  for (int i = 0; i < kLevels; ++i)
    svg.rect(left + kBox * i, y - 11, kBox, 12, formatted("heat-{}", i));
  svg.text(left - 8, y, formatted("relative L2 error  {:.2g} %", 100 * least_), "small", "end");
  svg.text(kMapRight + 8, y, formatted("{:.2g} %", 100 * most_), "small");
}

// One path for each colour, however many cells.
void ErrorMap::draw_cells(Svg& svg, double top) const {
  std::array<std::string, kLevels + 1> paths;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    for (std::size_t j = 0; j < lines_[i].cells.size(); ++j) {
      const int path = level(lines_[i].cells[j]) + 1;
      paths[static_cast<std::size_t>(path)] += formatted(
          "M{:.2f} {:.2f}h{:.2f}v{:.2f}h{:.2f}z", kMapLeft + cell_width_ * static_cast<double>(j),
          top + cell_height_ * static_cast<double>(i), cell_width_, cell_height_, -cell_width_);
    }
  }
  svg.path(paths[0], "heat-none");
  for (std::size_t i = 1; i < paths.size(); ++i) svg.path(paths[i], formatted("heat-{}", i - 1));
}

void ErrorMap::draw_shares(Svg& svg, double top) const {
  double most = 0;
  for (const Line& line : lines_) most = std::max(most, error_share(report_, line.all));
  const double longest = kShareRight - kShareLeft - 52;
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const double share = error_share(report_, lines_[i].all),
                 y = top + cell_height_ * static_cast<double>(i);
    const double length = most > 0 ? longest * share / most : 0;
    svg.rect(kShareLeft, y + 0.5, length, cell_height_ - 1, "share");
    if (share == most && share > 0)
      svg.text(kShareLeft + length + 6, y + cell_height_ / 2 + 4,
               formatted("{:.3g} %", 100 * share), "flag");
    svg.tooltip(kMapLeft, y, kShareRight - kMapLeft, cell_height_,
                formatted("{}: relative L2 error {:.3g} %, {:.3g} % of the squared error",
                          row_name(lines_[i]), 100 * lines_[i].all.relative_l2(), 100 * share));
  }
  svg.line(kShareLeft, top, kShareLeft, top + cell_height_ * static_cast<double>(lines_.size()),
           "axis");
}

void ErrorMap::draw_ticks(Svg& svg, double top) const {
  // About one label every 40 pixels.
  const auto step = static_cast<std::size_t>(std::max(1.0, std::ceil(40 / cell_height_)));
  for (std::size_t i = 0; i < lines_.size(); i += step)
    svg.text(kMapLeft - 8, top + cell_height_ * (static_cast<double>(i) + 0.5) + 4,
             grouped(lines_[i].first_row), "tick", "end");
  const double bottom = top + cell_height_ * static_cast<double>(lines_.size());
  for (int i = 0; i <= 4; ++i) {
    const double x = kMapLeft + (kMapRight - kMapLeft) * i / 4;
    svg.line(x, bottom, x, bottom + 4, "axis");
    svg.text(x, bottom + 18, grouped(columns_ * i / 4), "tick", "middle");
  }
  svg.text((kMapLeft + kMapRight) / 2, bottom + 36,
           wrapped_ ? formatted("{}s of a line", row_word_) : "column", "small", "middle");
}

void ErrorMap::draw(Svg& svg, double y) const {
  svg.text(kPlotLeft, y, "Where the error is", "head");
  if (lines_.empty()) return;
  draw_legend(svg, y + 22);
  svg.text(kShareLeft + 60, y + 22, "share of the squared error", "small");
  const double top = y + 36;
  svg.text(kMapLeft - 8, top - 10, formatted("{}", row_word_), "small", "end");
  draw_cells(svg, top);
  draw_shares(svg, top);
  draw_ticks(svg, top);
}

}  // namespace octavo::cli
