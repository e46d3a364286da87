// SVG plots of formats: blue for normal numbers, orange for subnormal ones.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/plot/svg.h"
#include "cli/text/format_facts.h"

namespace octavo::cli {

// One format: its fields and limits, its number line to scale, around zero and on a logarithmic
// axis, and the worst relative error of rounding to it.
std::string plot_format(const FormatFacts& facts);

// Several formats on one logarithmic axis: range and precision side by side.
std::string plot_formats(const std::vector<FormatFacts>& formats);

// Shared by both.
extern const std::string_view kPlotStyle;

struct PlotValue {
  double value;
  std::uint32_t code;
  bool subnormal;
  double weight;  // 1 for powers of two, towards 0 for odd mantissas: the length of its mark on the
                  // ruler
};
// The finite codes without a sign bit, zero left out, in ascending order.
std::vector<PlotValue> positive_values(const Format& format);

// "2⁻⁶" for axis labels.
std::string power_label(int exponent);
// A number as short_number has it, with superscripts, and "3 · 2⁻¹⁵" for long ones.
std::string number_label(double value);

// The linear number lines of plot_format. `y` is where the panel begins; both return where it ends.
double draw_whole_line(Svg& svg, const FormatFacts& facts, const std::vector<PlotValue>& values,
                       double y);
double draw_around_zero(Svg& svg, const FormatFacts& facts, const std::vector<PlotValue>& values,
                        double y);
// True if the range around zero shows values that the whole line does not resolve.
bool needs_zoom(const FormatFacts& facts);

// The logarithmic panels of plot_format, from `y` on.
void draw_log_panels(Svg& svg, const FormatFacts& facts, const std::vector<PlotValue>& values,
                     double y);

inline constexpr double kPlotWidth = 1280, kPlotLeft = 70, kPlotRight = kPlotWidth - 70;

}  // namespace octavo::cli
