// The plot of octavo quantize: metrics, histograms of values and codes, and the error map.
#include "cli/plot/plot_quantize.h"

#include <cmath>

#include "cli/plot/plot.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "octavo/base/error.h"

namespace octavo::cli {
namespace {

constexpr std::string_view kStyle = R"(.bars-zero{fill:#e2580f}.bars-limit{fill:#a3123f}
.reach-normal{fill:#1d4fb8;fill-opacity:.55}.reach-subnormal{fill:#1d4fb8;fill-opacity:.22}
.share{fill:#5b6573}.heat-none{fill:#8b95a3}
.heat-0{fill:#fff7e0}.heat-1{fill:#feebb9}.heat-2{fill:#fdd98e}.heat-3{fill:#fbbf63}.heat-4{fill:#f59f45}
.heat-5{fill:#e87a32}.heat-6{fill:#cf5426}.heat-7{fill:#a8321f}.heat-8{fill:#771a1a}
)";

// The end of a path, of a length that fits.
std::string short_name(const std::string& path) {
  constexpr std::size_t kMax = 44;
  const std::size_t slash = path.find_last_of('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return name.size() <= kMax ? name : name.substr(0, kMax - 3) + "...";
}

void draw_facts(Svg& svg, const QuantizeReport& report, double y) {
  const ErrorMetrics& m = report.metrics;
  const auto percent = [](double share) { return formatted("{:.3g} %", 100 * share); };
  const std::pair<std::string_view, std::string> facts[] = {
      {"SQNR", std::isfinite(m.sqnr) ? formatted("{:.2f} dB", m.sqnr) : "infinite"},
      {"relative L2 error", percent(m.relative_l2)},
      {"cosine", formatted("{:.6f}", m.cosine)},
      {"saturated", percent(m.saturated_share)},
      {"flushed to zero", percent(m.flushed_share)},
      {"bits a value", formatted("{:.4g}", m.bits_per_value)}};
  constexpr double kWidth = (kPlotRight - kPlotLeft) / 6;
  double x = kPlotLeft;
  for (const auto& [name, value] : facts) {
    svg.rect(x, y, kWidth - 12, 58, "card", 6);
    svg.text(x + 14, y + 22, name, "fact");
    svg.text(x + 14, y + 45, value, "value");
    x += kWidth;
  }
}

}  // namespace

std::string plot_of(const QuantizeReport& report) {
  const ErrorMap map(report);
  constexpr double kHistograms = 226;
  const double map_top = kHistograms + kHistogramsHeight + 40;
  const std::string name = short_name(report.input);
  Svg svg(kPlotWidth, map_top + map.height(),
          text(name, " quantized to ", describe(report.scaling)), verdict_of(report),
          text(kPlotStyle, kStyle));
  svg.text(kPlotLeft, 58, name, "name");
  svg.text(kPlotLeft, 84, text(shape_and_type(report), " as ", describe(report.scaling)), "note");
  draw_facts(svg, report, 100);
  svg.text(kPlotLeft, 190, verdict_of(report), "note");
  draw_histograms(svg, report, kHistograms);
  map.draw(svg, map_top);
  return std::move(svg).finish();
}

}  // namespace octavo::cli
