// Several formats on one logarithmic axis. A row is a format, a cell is one power of two, and the
// number in it says how many values the format has there: range by length, precision by shade.

#include <algorithm>
#include <cmath>

#include "cli/plot/plot.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"

namespace octavo::cli {
namespace {

constexpr double kBarsLeft = 300, kBarsRight = 1090, kTop = 178, kRowHeight = 54, kBarHeight = 28;
// A format that spans more powers of two than this (e8m0fnu) would squeeze all others; it is cut.
constexpr int kWidestSpan = 64;
// More marks than this in one cell would run together.
constexpr int kMaxNotches = 16;

int low_exponent(const FormatFacts& facts) {
  return static_cast<int>(std::floor(std::log2(facts.min_positive)));
}
int high_exponent(const FormatFacts& facts) {
  return static_cast<int>(std::floor(std::log2(facts.max))) + 1;
}

LogAxis common_axis(const std::vector<FormatFacts>& formats) {
  int low = 0, high = 1;
  for (const FormatFacts& facts : formats) {
    if (high_exponent(facts) - low_exponent(facts) > kWidestSpan) continue;
    low = std::min(low, low_exponent(facts));
    high = std::max(high, high_exponent(facts));
  }
  return {low - 1.0, high + 1.0, kBarsLeft, kBarsRight};
}

struct Binade {
  int exponent = 0;
  int values = 0;
  bool subnormal = false;
  double end = 0;  // where the cell ends: the next power of two, or the largest value
};

std::vector<Binade> binades_of(const FormatFacts& facts, const std::vector<PlotValue>& values) {
  std::vector<Binade> binades;
  for (const PlotValue& value : values) {
    const int exponent = std::ilogb(value.value);
    if (binades.empty() || binades.back().exponent != exponent) {
      binades.push_back({exponent, 0, value.subnormal, std::ldexp(1.0, exponent + 1)});
    }
    ++binades.back().values;
  }
  // The last cell shows how far into its power of two the format reaches.
  if (binades.back().values > 1) binades.back().end = facts.max;
  return binades;
}

// Shade by the number of values: two oranges for subnormal, six blues for normal numbers.
std::string cell_class(const Binade& binade) {
  const int level = static_cast<int>(std::lround(std::log2(binade.values)));
  return formatted("cell-{}", binade.subnormal ? std::min(level, 1) : 2 + std::min(level, 5));
}

std::string_view number_class(const Binade& binade) {
  return binade.subnormal ? "in-orange" : binade.values == 1 ? "in-pale" : "in-cell";
}

void draw_bar(Svg& svg, const FormatFacts& facts, const LogAxis& axis, double y) {
  const std::vector<PlotValue> values = positive_values(facts.format);
  Strokes notches;
  for (const Binade& binade : binades_of(facts, values)) {
    if (binade.exponent < axis.from || binade.exponent >= axis.to) continue;
    const double left = axis.at_exponent(binade.exponent), right = axis.at(binade.end);
    svg.rect(left + 0.5, y, right - left - 1, kBarHeight, cell_class(binade));
    if (right - left > 12) {
      svg.text((left + right) / 2, y + 15, std::to_string(binade.values), number_class(binade),
               "middle");
    }
    if (binade.values > kMaxNotches) continue;
    for (const PlotValue& value : values) {
      if (std::ilogb(value.value) == binade.exponent)
        notches.add(axis.at(value.value), y + kBarHeight - 7, y + kBarHeight);
    }
  }
  svg.path(notches.data(), "notch");
  // Arrow heads where a bar goes on beyond the picture.
  const double middle = y + kBarHeight / 2;
  if (low_exponent(facts) < axis.from) {
    svg.path(formatted("M{:.1f} {:.1f}l-12 {:.1f}l12 {:.1f}z", axis.left - 3, y, kBarHeight / 2,
                       kBarHeight / 2),
             "cell-2");
    svg.text(axis.left - 20, middle + 4, number_label(facts.min_positive), "tick", "end");
  }
  if (high_exponent(facts) > axis.to + 1) {
    svg.path(formatted("M{:.1f} {:.1f}l12 {:.1f}l-12 {:.1f}z", axis.right + 3, y, kBarHeight / 2,
                       kBarHeight / 2),
             "cell-2");
  }
}

void draw_row(Svg& svg, const FormatFacts& facts, const LogAxis& axis, double y) {
  svg.text(kPlotLeft, y + 13, facts.name, "row mono");
  svg.text(kPlotLeft, y + 29, facts.note, "small");
  draw_bar(svg, facts, axis, y);
  svg.text(kPlotRight, y + 12, formatted("up to {}", number_label(facts.max)), "flag", "end");
  svg.text(kPlotRight, y + 28,
           formatted("{} bits, {} values", facts.format.bits(), grouped(facts.finite_values)),
           "small", "end");
}

void draw_axis(Svg& svg, const LogAxis& axis, double top, double bottom) {
  for (int exponent = static_cast<int>(axis.from); exponent <= axis.to; ++exponent) {
    const bool labelled = exponent % 2 == 0;
    const double x = axis.at_exponent(exponent);
    svg.line(x, top, x, bottom, exponent == 0 ? "axis" : "grid");
    if (!labelled) continue;
    svg.text(x, top - 8, power_label(exponent), "tick", "middle");
    svg.text(x, bottom + 18, power_label(exponent), "tick", "middle");
  }
}

// What the shades mean: so many values in a power of two, and the worst relative error that leaves,
// half a step at its lower end.
void draw_legend(Svg& svg, double y) {
  svg.text(kPlotLeft, y, "Values in a power of two, and the worst relative error of rounding there",
           "small");
  double x = kBarsLeft + 200;
  for (int level = 0; level <= 5; ++level) {
    svg.rect(x, y - 13, 26, 18, cell_class({0, 1 << level, false, 0}), 2);
    svg.text(x + 13, y, std::to_string(1 << level), number_class({0, 1 << level, false, 0}),
             "middle");
    svg.text(x + 33, y, formatted("{:.2g} %", 100.0 / (2 * (1 << level) + 1)), "small");
    x += 84;
  }
  svg.rect(x, y - 13, 26, 18, "cell-1", 2);
  svg.text(x + 33, y, "subnormal", "small");
}

}  // namespace

std::string plot_formats(const std::vector<FormatFacts>& formats) {
  const LogAxis axis = common_axis(formats);
  const double bottom = kTop + kRowHeight * static_cast<double>(formats.size());
  Svg svg(kPlotWidth, bottom + 48, "Range and precision of the named formats",
          "One row a format, one cell a power of two; the number in a cell says how many positive "
          "values lie there.",
          kPlotStyle);
  svg.text(kPlotLeft, 58, "Range and precision", "name");
  svg.text(kPlotLeft, 84,
           "Positive values of the formats octavo knows by name. A longer bar reaches further; a "
           "darker cell is finer.",
           "note");
  draw_legend(svg, 120);
  draw_axis(svg, axis, kTop - 12, bottom);
  for (std::size_t i = 0; i < formats.size(); ++i) {
    draw_row(svg, formats[i], axis, kTop + 6 + kRowHeight * static_cast<double>(i));
  }
  return std::move(svg).finish();
}

}  // namespace octavo::cli
