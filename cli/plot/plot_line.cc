// The number line itself, to scale: once over the whole range, once around zero. Few values are
// drawn as the marks of a ruler (powers of two longest); thousands as bars that say how many lie in
// each place.

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/plot/plot.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"

namespace octavo::cli {
namespace {

constexpr double kMarkHeight = 64, kShortestMark = 0.35;  // of kMarkHeight
constexpr std::size_t kMaxMarks = 1500;
constexpr double kBarWidth = 2;
constexpr double kZoomHeight = 158;

bool in_view(const LinearAxis& axis, double value) {
  return value >= axis.from && value <= axis.to;
}

// Both signs of every value that the axis shows, calls draw(value, with sign).
template <typename Draw>
void for_each_in_view(const FormatFacts& facts, const std::vector<PlotValue>& values,
                      const LinearAxis& axis, Draw&& draw) {
  for (const PlotValue& value : values) {
    if (in_view(axis, value.value)) draw(value, value.value);
    if (facts.format.is_signed && in_view(axis, -value.value)) draw(value, -value.value);
  }
  // Two's complement reaches one further down than up.
  if (facts.format.twos_complement && in_view(axis, facts.lowest))
    draw(values.back(), facts.lowest);
}

void draw_bars(Svg& svg, const FormatFacts& facts, const std::vector<PlotValue>& values,
               const LinearAxis& axis, double baseline) {
  const auto bins = static_cast<std::size_t>((axis.right - axis.left) / kBarWidth) + 1;
  // Subnormal and normal numbers stand on one another only in the bins around the border between
  // them.
  std::array<std::vector<int>, 2> counts{std::vector<int>(bins), std::vector<int>(bins)};
  for_each_in_view(facts, values, axis, [&](const PlotValue& value, double position) {
    const auto bin = static_cast<std::size_t>((axis.at(position) - axis.left) / kBarWidth);
    ++counts[value.subnormal][std::min(bin, bins - 1)];
  });
  double most = 1;
  for (const auto& side : counts)
    most = std::max<double>(most, *std::max_element(side.begin(), side.end()));
  for (const bool subnormal : {false, true}) {
    std::string path;
    for (std::size_t bin = 0; bin < bins; ++bin) {
      if (counts[subnormal][bin] == 0) continue;
      const double height =
          kMarkHeight * std::log2(1.0 + counts[subnormal][bin]) / std::log2(1.0 + most);
      const double x = axis.left + static_cast<double>(bin) * kBarWidth;
      path += formatted("M{:.1f} {:.1f}h{:.1f}V{:.1f}h-{:.1f}z", x, baseline, kBarWidth,
                        baseline - height, kBarWidth);
    }
    svg.path(path, subnormal ? "bars-subnormal" : "bars-normal");
  }
}

void draw_marks(Svg& svg, const FormatFacts& facts, const std::vector<PlotValue>& values,
                const LinearAxis& axis, double baseline, std::size_t shown) {
  std::array<Strokes, 2> strokes;
  for (const bool negative : {false, true}) {
    for_each_in_view(facts, values, axis, [&](const PlotValue& value, double position) {
      if ((position < 0) != negative) return;
      const double height = kMarkHeight * (kShortestMark + (1 - kShortestMark) * value.weight);
      strokes[value.subnormal].add(axis.at(position), baseline - height, baseline);
    });
  }
  const std::string thin = shown > 300 ? " thin" : "";
  svg.path(strokes[0].data(), "normal" + thin);
  svg.path(strokes[1].data(), "subnormal" + thin);
}

// The marks, zero and the axis; labels at multiples of `step`, or at the values themselves when
// there are few.
void draw_line(Svg& svg, const FormatFacts& facts, const std::vector<PlotValue>& values,
               const LinearAxis& axis, double baseline, double step) {
  std::size_t shown = 0;
  for_each_in_view(facts, values, axis, [&](const PlotValue&, double) { ++shown; });
  svg.line(axis.left, baseline, axis.right, baseline, "axis");
  const auto label = [&](double value) {
    svg.line(axis.at(value), baseline, axis.at(value), baseline + 5, "axis");
    svg.text(axis.at(value), baseline + 19, number_label(value), "tick", "middle");
  };
  constexpr std::size_t kFew = 20;
  if (shown <= kFew) {
    label(0);
    for_each_in_view(facts, values, axis,
                     [&](const PlotValue&, double position) { label(position); });
  } else {
    for (double value = std::ceil(axis.from / step) * step; value <= axis.to * 1.0001;
         value += step)
      label(value);
  }
  if (shown > kMaxMarks) {
    draw_bars(svg, facts, values, axis, baseline);
  } else {
    draw_marks(svg, facts, values, axis, baseline, shown);
  }
  if (facts.format.has_zero)
    svg.line(axis.at(0), baseline - kMarkHeight - 8, axis.at(0), baseline, "zero");
}

// A power of two that fits four to eight times into `range`.
double label_step(double range) { return std::exp2(std::floor(std::log2(range / 4))); }

double zoom_range(const FormatFacts& facts) { return 2 * facts.min_normal; }

std::string bars_note(std::size_t values) {
  return values > kMaxMarks ? " Bars: how many values lie in one place (log)." : "";
}

}  // namespace

bool needs_zoom(const FormatFacts& facts) {
  return facts.subnormals > 0 && facts.max / facts.min_normal > 16;
}

double draw_whole_line(Svg& svg, const FormatFacts& facts, const std::vector<PlotValue>& values,
                       double y) {
  const double low = facts.format.is_signed ? std::min(facts.lowest, -facts.max) : 0;
  const LinearAxis axis{low, facts.max, kPlotLeft, kPlotRight};
  svg.text(kPlotLeft, y, "Every value, to scale", "head");
  const std::string within =
      facts.format.is_signed ? formatted("within ±{}", number_label(facts.median_magnitude))
                             : formatted("at or below {}", number_label(facts.median_magnitude));
  svg.text(kPlotLeft, y + 19,
           formatted("Half of the {} finite codes lie {}.{}", grouped(facts.finite_codes), within,
                     bars_note(values.size())),
           "small");
  const double baseline = y + 19 + 22 + kMarkHeight;
  draw_line(svg, facts, values, axis, baseline, label_step(facts.max));
  return baseline + 26;
}

double draw_around_zero(Svg& svg, const FormatFacts& facts, const std::vector<PlotValue>& values,
                        double y) {
  const double range = zoom_range(facts);
  const LinearAxis axis{facts.format.is_signed ? -range : 0, range, kPlotLeft, kPlotRight};
  const double centre = facts.format.is_signed ? (kPlotLeft + kPlotRight) / 2 : kPlotLeft;
  // A lens that opens from zero on the line above.
  constexpr double kLensHeight = 26;
  svg.path(formatted("M{:.1f} {:.1f}L{:.1f} {:.1f}H{:.1f}z", centre, y - 2, axis.left,
                     y + kLensHeight, axis.right),
           "lens");
  const double top = y + kLensHeight;
  svg.rect(axis.left, top, axis.right - axis.left, kZoomHeight, "lens");
  // By logarithms: the ratio itself may be beyond a double.
  const double magnified = std::log2(facts.max) - std::log2(range);
  const std::string times_larger =
      magnified < 20 ? grouped(std::llround(std::exp2(magnified)))
                     : "about " + power_label(static_cast<int>(std::lround(magnified)));
  svg.text(kPlotLeft + 14, top + 22, formatted("Around zero, {} times larger", times_larger),
           "head");
  svg.text(kPlotLeft + 14, top + 41,
           formatted("Below {} the steps stop shrinking: {} subnormal codes, the smallest {}.",
                     number_label(facts.min_normal), grouped(facts.subnormals),
                     number_label(facts.min_positive)),
           "small");
  const LinearAxis inner{axis.from, axis.to, axis.left + 28, axis.right - 28};
  const double baseline = top + kZoomHeight - 32;
  draw_line(svg, facts, values, inner, baseline, label_step(range));
  return top + kZoomHeight;
}

}  // namespace octavo::cli
