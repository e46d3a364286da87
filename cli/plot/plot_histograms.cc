// Two histograms side by side. Counts are logarithmic: one outlier row must be seen beside
// millions.

#include <algorithm>
#include <cmath>

#include "cli/plot/plot.h"
#include "cli/plot/plot_quantize.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "octavo/base/count_text.h"
#include "octavo/format/decode.h"
#include "octavo/format/parse_format.h"

namespace octavo::cli {
namespace {

constexpr double kPanelWidth = 530, kBarsHeight = 150;
constexpr std::size_t kMaxBars = 256;

struct Bar {
  std::int64_t count = 0;
  std::string_view css_class = "bars-normal";
  std::string tooltip;
};

double log_height(std::int64_t count, std::int64_t most) {
  if (count == 0) return 0;
  return kBarsHeight * std::log1p(static_cast<double>(count)) /
         std::log1p(static_cast<double>(std::max<std::int64_t>(1, most)));
}

void draw_bars(Svg& svg, const std::vector<Bar>& bars, double left, double top) {
  std::int64_t most = 1;
  for (const Bar& bar : bars) most = std::max(most, bar.count);
  const double bottom = top + kBarsHeight;
  for (std::int64_t mark = 1; mark <= most; mark *= 10) {
    const double y = bottom - log_height(mark, most);
    svg.line(left, y, left + kPanelWidth, y, "grid");
    // Labels that would touch the one below are left out.
    if (mark == 1 || log_height(mark, most) - log_height(mark / 10, most) > 13)
      svg.text(left - 8, y + 4, grouped(mark), "tick", "end");
    if (mark > most / 10) break;
  }
  const double width = kPanelWidth / static_cast<double>(std::max<std::size_t>(1, bars.size()));
  const double gap = width > 6 ? 1 : 0;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double x = left + width * static_cast<double>(i),
                 height = log_height(bars[i].count, most);
    if (height > 0) svg.rect(x + gap / 2, bottom - height, width - gap, height, bars[i].css_class);
    if (bars[i].count > 0) svg.tooltip(x, top, width, kBarsHeight, bars[i].tooltip);
  }
  svg.line(left, bottom, left + kPanelWidth, bottom, "axis");
}

// From the smallest code to the largest under one scale, cut at the edges of the panel.
void draw_reach(Svg& svg, const Format& format, double scale, std::string_view what,
                const LogAxis& axis, double y) {
  const auto at = [&](double value) { return std::clamp(axis.at(value), axis.left, axis.right); };
  const double low = at(scale * min_positive(format)), normal = at(scale * min_normal(format)),
               high = at(scale * max_value(format));
  svg.rect(low, y, normal - low, 9, "reach-subnormal");
  svg.rect(normal, y, high - normal, 9, "reach-normal");
  svg.text(axis.left - 8, y + 9, what, "tick", "end");
}

void draw_values(Svg& svg, const QuantizeReport& report, double left, double y) {
  const ValueHistogram& values = report.metrics.values;
  svg.text(left, y, "Values by magnitude", "head");
  std::string note = formatted("how many lie between two powers of two; largest {}",
                               number_label(report.metrics.amax));
  if (values.zeros > 0) note += formatted("; {} zeros", grouped(values.zeros));
  svg.text(left, y + 19, note, "small");
  if (values.counts.empty()) return;
  // Half a dozen bars at least, or one would fill the panel.
  const int count = static_cast<int>(values.counts.size()), padding = std::max(1, (8 - count) / 2);
  std::vector<Bar> bars(values.counts.size() + 2 * static_cast<std::size_t>(padding));
  for (int i = 0; i < count; ++i) {
    const std::int64_t n = values.counts[static_cast<std::size_t>(i)];
    const int exponent = values.first_exponent + i;
    const int bar = i + padding;
    bars[static_cast<std::size_t>(bar)] = {
        n, "bars-normal",
        formatted("{} from {} to {}", grouped(n), power_label(exponent),
                  power_label(exponent + 1))};
  }
  const double top = y + 34, bottom = top + kBarsHeight;
  draw_bars(svg, bars, left, top);
  const LogAxis axis{static_cast<double>(values.first_exponent - padding),
                     static_cast<double>(values.first_exponent + count + padding), left,
                     left + kPanelWidth};
  const int step = std::max(1, static_cast<int>(std::ceil((axis.to - axis.from) / 12)));
  for (int e = static_cast<int>(axis.from); e <= axis.to; ++e) {
    if (e % step != 0) continue;
    svg.line(axis.at_exponent(e), bottom, axis.at_exponent(e), bottom + 4, "axis");
    svg.text(axis.at_exponent(e), bottom + 18, power_label(e), "tick", "middle");
  }
  const ScaleRange& scales = report.metrics.scales;
  if (scales.most == 0) return;
  const double reach = bottom + 30;
  const bool one = scales.least == scales.most;
  draw_reach(svg, report.scaling.format, scales.most, one ? "scale" : "most", axis, reach);
  if (!one) draw_reach(svg, report.scaling.format, scales.least, "least", axis, reach + 15);
  svg.text(left, reach + (one ? 28 : 43),
           one ? formatted("range of codes with the scale {}; paler: subnormal codes",
                           number_label(scales.least))
               : formatted("range of codes with the largest scale, {}, and the least, {}; "
                           "paler: subnormal codes",
                           number_label(scales.most), number_label(scales.least)),
           "small");
}

// The finite codes in the order of their values, -0 before 0; several to a bar where there are
// many.
void draw_codes(Svg& svg, const QuantizeReport& report, double left, double y) {
  const Format& format = report.scaling.format;
  std::vector<std::uint32_t> order;
  std::int64_t other = 0, highest = 0;
  for (std::uint32_t code = 0; code <= format.code_mask(); ++code) {
    if (std::isfinite(decode(format, code))) {
      order.push_back(code);
      highest +=
          std::fabs(decode(format, code)) >= max_value(format) ? report.metrics.codes[code] : 0;
    } else {
      other += report.metrics.codes[code];
    }
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const double x = decode(format, a), z = decode(format, b);
    return x != z ? x < z : std::signbit(x) > std::signbit(z);
  });
  const std::size_t each = (order.size() + kMaxBars - 1) / kMaxBars;
  std::vector<Bar> bars((order.size() + each - 1) / each);
  for (std::size_t i = 0; i < order.size(); ++i) {
    Bar& bar = bars[i / each];
    const double value = decode(format, order[i]);
    bar.count += report.metrics.codes[order[i]];
    if (value == 0) bar.css_class = "bars-zero";
    if (value != 0 && (std::fabs(value) >= max_value(format))) bar.css_class = "bars-limit";
    bar.tooltip = formatted("{} {}: {} times", hex_of(format, order[i]), short_number(value),
                            grouped(bar.count));
  }
  svg.text(left, y, "Codes in use", "head");
  std::string note = formatted("every {} code by value", format_name(format));
  if (other > 0) note += formatted("; {} NaN or Inf", grouped(other));
  svg.text(left, y + 19, note, "small");
  const double top = y + 34, bottom = top + kBarsHeight;
  draw_bars(svg, bars, left, top);
  for (std::size_t tick = 0; tick <= 4; ++tick) {
    const std::size_t i = tick * (order.size() - 1) / 4;
    const double x =
        left + kPanelWidth * (static_cast<double>(i) + 0.5) / static_cast<double>(order.size());
    svg.line(x, bottom, x, bottom + 4, "axis");
    const double value = decode(format, order[i]);
    svg.text(x, bottom + 18, number_label(value == 0 ? 0.0 : value), "tick", "middle");
  }
  svg.rect(left, bottom + 30, 11, 11, "bars-zero");
  svg.text(
      left + 17, bottom + 40,
      formatted("zero; {} that {} not zero became it", grouped(report.metrics.flushed, "value"),
                plural(report.metrics.flushed, "is", "are")),
      "small");
  svg.rect(left, bottom + 48, 11, 11, "bars-limit");
  svg.text(left + 17, bottom + 58,
           formatted("the limits of the format, {}; {} lay beyond", grouped(highest, "code"),
                     grouped(report.metrics.saturated, "value")),
           "small");
}

}  // namespace

void draw_histograms(Svg& svg, const QuantizeReport& report, double y) {
  draw_values(svg, report, kPlotLeft + 20, y);
  draw_codes(svg, report, kPlotRight - kPanelWidth, y);
}

}  // namespace octavo::cli
