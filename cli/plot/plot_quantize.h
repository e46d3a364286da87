// The panels of octavo quantize's plot. Each draws from `y` on.
#pragma once

#include "cli/plot/svg.h"
#include "cli/tensor/quantize_report.h"

namespace octavo::cli {

// Histogram of magnitudes, with the range that codes cover at the smallest and largest scale below
// it; beside it a histogram of codes.
inline constexpr double kHistogramsHeight = 262;
void draw_histograms(Svg& svg, const QuantizeReport& report, double y);

// Heat map of the tensor: colour is the relative error of a cell, bars are the fraction of the
// squared error in its rows.
class ErrorMap {
 public:
  explicit ErrorMap(const QuantizeReport& report);
  [[nodiscard]] double height() const;
  void draw(Svg& svg, double y) const;

 private:
  struct Line {
    std::vector<ErrorSums> cells;
    ErrorSums all;
    std::int64_t first_row = 0, end_row = 0;
  };
  [[nodiscard]] std::string row_name(const Line& line) const;
  [[nodiscard]] int level(const ErrorSums& cell) const;
  void draw_legend(Svg& svg, double y) const;
  void draw_cells(Svg& svg, double top) const;
  void draw_shares(Svg& svg, double top) const;
  void draw_ticks(Svg& svg, double top) const;

  const QuantizeReport& report_;
  bool has_none_ = false;  // cells without a finite result
  bool wrapped_ = false;   // one long row, wrapped into lines
  std::string_view row_word_ = "row";
  std::int64_t columns_ = 1;  // elements along a line
  std::vector<Line> lines_;
  double least_ = 0, most_ = 0;  // relative errors that the colours span
  double cell_width_ = 0, cell_height_ = 0;
};

}  // namespace octavo::cli
