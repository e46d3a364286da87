// The logarithmic panels: positive values by power of two, and below them, on the same axis, how
// much rounding to nearest may lose.

#include <algorithm>
#include <cmath>

#include "cli/plot/plot.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"

namespace octavo::cli {
namespace {

constexpr double kMarkHeight = 58, kShortestMark = 0.3, kErrorHeight = 170;
constexpr std::size_t kMaxTooltips = 256;

void draw_marks(Svg& svg, const FormatFacts& facts, const std::vector<PlotValue>& values,
                const LogAxis& axis, double baseline) {
  Strokes normal, subnormal;
  for (const PlotValue& value : values) {
    const double length = kMarkHeight * (kShortestMark + (1 - kShortestMark) * value.weight);
    (value.subnormal ? subnormal : normal).add(axis.at(value.value), baseline - length, baseline);
  }
  const std::string thin = values.size() > 300 ? " thin" : "";
  svg.path(subnormal.data(), "subnormal" + thin);
  svg.path(normal.data(), "normal" + thin);
  svg.line(axis.left, baseline, axis.right, baseline, "axis");
  if (values.size() > kMaxTooltips) return;
  for (const PlotValue& value : values) {
    svg.tooltip(axis.at(value.value) - 2, baseline - kMarkHeight, 4, kMarkHeight,
                formatted("{} = {}", hex_of(facts.format, value.code), exact_decimal(value.value)));
  }
}

void draw_flags(Svg& svg, const FormatFacts& facts, const LogAxis& axis, double top,
                double bottom) {
  const auto flag = [&](double value, std::string_view what, int level, std::string_view css_class,
                        bool to_left) {
    const double x = axis.at(value), label = top - 24 + 17 * level;
    svg.line(x, label - 9, x, bottom, "limit");
    svg.text(x + (to_left ? -6 : 6), label, formatted("{} {}", what, number_label(value)),
             css_class, to_left ? "end" : "start");
  };
  const bool has_subnormals = facts.subnormals > 0;
  if (has_subnormals) flag(facts.min_positive, "smallest", 0, "flag-sub", false);
  flag(facts.min_normal, has_subnormals ? "smallest normal" : "smallest", 1, "flag", false);
  flag(facts.max, "largest", 0, "flag", true);
}

// Labels at every power of two, or at every 2nd, 4th, ... so that they stay apart.
void draw_exponents(Svg& svg, const LogAxis& axis, double top, double bottom) {
  constexpr double kApart = 44;
  int step = 1;
  while ((axis.right - axis.left) / (axis.to - axis.from) * step < kApart) step *= 2;
  for (int exponent = static_cast<int>(std::ceil(axis.from)); exponent <= axis.to; ++exponent) {
    if (exponent % step != 0) continue;
    const double x = axis.at_exponent(exponent);
    svg.line(x, top, x, bottom, "grid");
    svg.text(x, bottom + 18, power_label(exponent), "tick", "middle");
  }
}

// Between neighbours a and b rounding to nearest errs most at their middle: (b - a) / (a + b). One
// step for each gap.
double gap_error(double a, double b) { return (b / 2 - a / 2) / (a / 2 + b / 2); }

void draw_error(Svg& svg, const FormatFacts& facts, const std::vector<PlotValue>& values,
                const LogAxis& axis, double top) {
  double least = 1;
  for (std::size_t i = 1; i < values.size(); ++i)
    least = std::min(least, gap_error(values[i - 1].value, values[i].value));
  const double bottom = top + kErrorHeight;
  const double floor_exponent = std::min(-4.0, std::floor(std::log2(least)) - 1);
  const LogAxis error_axis{floor_exponent, 0, bottom, top};
  const bool few_decades = floor_exponent > -7;
  for (double decade = 1; decade > 1e-6; decade /= 10) {
    for (const double part : {1.0, 0.5, 0.2}) {
      if ((part < 1 && !few_decades) || std::log2(decade * part) <= floor_exponent) continue;
      const double y = error_axis.at(decade * part);
      svg.line(axis.left, y, axis.right, y, "grid");
      svg.text(axis.left - 8, y + 4, formatted("{:.3g} %", 100 * decade * part), "tick", "end");
    }
  }

  constexpr double kFinest = 0.4;  // pixels: of the many steps in one place the last is drawn
  double drawn_to = 0;
  std::string subnormal, normal;
  for (std::size_t i = 1; i < values.size(); ++i) {
    const double a = values[i - 1].value, b = values[i].value;
    const bool border = values[i].value == facts.min_normal || i + 1 == values.size();
    if (axis.at(b) - drawn_to < kFinest && !border) continue;
    drawn_to = axis.at(b);
    (values[i - 1].subnormal ? subnormal : normal) +=
        formatted("L{:.2f} {:.2f}H{:.2f}", axis.at(a), error_axis.at(gap_error(a, b)), axis.at(b));
  }
  const auto area = [&](double from, const std::string& steps, std::string_view css_class) {
    if (!steps.empty())
      svg.path(formatted("M{:.2f} {:.2f}{}V{:.2f}z", axis.at(from), bottom, steps, bottom),
               css_class);
  };
  area(facts.min_positive, subnormal, "area-subnormal");
  area(facts.min_normal, normal, "area-normal");
  // Below the smallest value everything is lost; beyond the largest one x becomes it: (x - max) /
  // x.
  svg.rect(axis.left, top, axis.at(facts.min_positive) - axis.left, kErrorHeight, "lost");
  std::string beyond;
  for (double x = axis.at(facts.max) + 0.5; x <= axis.right; x += 1) {
    const double ratio =
        std::exp2((x - axis.at(facts.max)) / (axis.right - axis.left) * (axis.to - axis.from));
    const double error = std::max(1 - 1 / ratio, std::exp2(floor_exponent));
    beyond += formatted("L{:.2f} {:.2f}", x, error_axis.at(error));
  }
  area(facts.max, beyond, "lost");
  svg.line(axis.left, bottom, axis.right, bottom, "axis");
  if (facts.format.twos_complement || facts.format.mantissa_bits == 0) return;
  const double bound = error_axis.at(facts.epsilon / 2);
  svg.line(axis.at(facts.min_normal), bound, axis.at(facts.max), bound, "limit");
  svg.text(axis.at(facts.max) - 6, bound - 7,
           formatted("half of epsilon: {:.3g} %", 100 * facts.epsilon / 2), "flag", "end");
}

std::string line_note(const FormatFacts& facts) {
  if (facts.format.twos_complement)
    return "Evenly spaced: the nearer to zero, the fewer values a power of two holds.";
  const int per_binade = 1 << facts.format.mantissa_bits;
  return formatted("From {} on, every power of two holds {}.", number_label(facts.min_normal),
                   per_binade == 1 ? "one value" : formatted("{} values", grouped(per_binade)));
}

}  // namespace

void draw_log_panels(Svg& svg, const FormatFacts& facts, const std::vector<PlotValue>& values,
                     double y) {
  const LogAxis axis{std::floor(std::log2(facts.min_positive)) - 1,
                     std::ceil(std::log2(facts.max)) + 1, kPlotLeft, kPlotRight};
  svg.text(kPlotLeft, y, "Positive values by power of two", "head");
  svg.text(kPlotLeft, y + 19, line_note(facts), "small");
  const double baseline = y + 72 + kMarkHeight;
  const double error_top = baseline + 68;
  draw_exponents(svg, axis, baseline - kMarkHeight, error_top + kErrorHeight);
  svg.rect(kPlotLeft - 1, baseline + 1, kPlotRight - kPlotLeft + 2, error_top - baseline - 2,
           "paper");
  draw_flags(svg, facts, axis, baseline - kMarkHeight, baseline);
  draw_marks(svg, facts, values, axis, baseline);
  svg.text(kPlotLeft, baseline + 34, "Worst relative error of rounding to nearest", "head");
  svg.text(kPlotLeft, baseline + 53,
           facts.subnormals > 0
               ? "Half a step relative to the value: level for normal numbers, growing where "
                 "subnormal ones "
                 "run out of bits. Grey: lost to zero, or beyond the largest value."
               : "Half a step relative to the value. Grey: lost below the smallest value, or "
                 "beyond the largest.",
           "small");
  draw_error(svg, facts, values, axis, error_top);
}

}  // namespace octavo::cli
