// The plot of octavo attention-report: one panel per kind of input, with the error of each rung
// after each of the four steps, on a logarithmic axis.

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/attention_report.h"
#include "cli/plot/plot.h"
#include "cli/text/formatted.h"

namespace octavo::cli {
namespace {

constexpr std::string_view kStyle = R"(
.step-0{fill:#a9c1ee}.step-1{fill:#4f7dd3}.step-2{fill:#0f8a7e}.step-3{fill:#1b2430}
.pass{font-size:13px;font-weight:600;fill:#0f7a3d}.miss{font-size:13px;font-weight:600;fill:#a3123f}
@media(prefers-color-scheme:dark){text{fill:#e4e9ef}.paper{fill:#1a2027}.note,.small,.tick{fill:#98a3b0}
.grid{stroke:#2c343d}.axis{stroke:#98a3b0}.step-0{fill:#3c5a91}.step-1{fill:#5d8fe8}.step-2{fill:#2fb3a5}.step-3{fill:#d6dde6}
.pass{fill:#63c98b}.miss{fill:#ff8a9d}.hover{fill:#fff;fill-opacity:0}}
)";
constexpr std::array<std::string_view, 4> kSteps = {"quantized inputs", "after Q K^T",
                                                    "after softmax", "after P V (output)"};
constexpr double kPanelHeight = 250, kBarsHeight = 150, kTop = 50;
constexpr double kLow = 1e-5, kHigh = 1.0;

double height_of(double error) {
  const double clamped = std::clamp(error, kLow, kHigh);
  return kBarsHeight * (std::log10(clamped) - std::log10(kLow)) /
         (std::log10(kHigh) - std::log10(kLow));
}

void draw_case(Svg& svg, const AttentionCase& inputs, double top) {
  svg.text(kPlotLeft, top, inputs.name, "head");
  const double bottom = top + 30 + kBarsHeight;
  for (int exponent = -5; exponent <= 0; ++exponent) {
    const double y = bottom - height_of(std::pow(10.0, exponent));
    svg.line(kPlotLeft, y, kPlotRight, y, "grid");
    svg.text(kPlotLeft - 8, y + 4, formatted("{:g}%", 100.0 * std::pow(10.0, exponent)), "tick",
             "end");
  }
  const double width =
      (kPlotRight - kPlotLeft) / static_cast<double>(std::max<std::size_t>(1, inputs.rungs.size()));
  double x = kPlotLeft;
  for (const AttentionRungError& error : inputs.rungs) {
    const std::array<double, 4> steps = {error.stages.inputs, error.stages.scores,
                                         error.stages.weights, error.stages.output};
    const double bar = std::min(32.0, width / 6);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double height = steps[i] == steps[i] ? height_of(steps[i]) : kBarsHeight;
      const double left = x + width / 2 + (static_cast<double>(i) - 2.0) * (bar + 3);
      svg.rect(left, bottom - height, bar, height, formatted("step-{}", i), 2);
      svg.tooltip(left, bottom - kBarsHeight, bar, kBarsHeight,
                  formatted("{}, {}: {:.3g}%", name_of(error.rung), kSteps[i], 100 * steps[i]));
    }
    svg.text(x + width / 2, bottom + 20, name_of(error.rung), "row", "middle");
    const double share = share_of(error, error.failures);
    svg.text(x + width / 2, bottom + 38,
             error.failures == 0 ? std::string("all pass") : formatted("{:.3g}% fail", 100 * share),
             error.failures == 0 ? "pass" : "miss", "middle");
    x += width;
  }
  svg.line(kPlotLeft, bottom, kPlotRight, bottom, "axis");
}

}  // namespace

std::string plot_attention(const AttentionFindings& findings) {
  const double height = kTop + kPanelHeight * static_cast<double>(findings.cases.size());
  const std::string title = "Attention on each rung, against f64";
  const std::string note = formatted(
      "Q {}, K {}. Relative L2 error after each step; an element fails outside {} + {} |exact|.",
      to_string(findings.q), to_string(findings.k), findings.atol, findings.rtol);
  Svg svg(kPlotWidth, height, title, note, std::string(kPlotStyle) + std::string(kStyle));
  double x = kPlotLeft;
  for (std::size_t i = 0; i < kSteps.size(); ++i) {
    svg.rect(x, 9, 14, 14, formatted("step-{}", i), 2);
    svg.text(x + 20, 21, kSteps[i], "small");
    x += 170;
  }
  double top = kTop + 10;
  for (const AttentionCase& inputs : findings.cases) {
    draw_case(svg, inputs, top);
    top += kPanelHeight;
  }
  return std::move(svg).finish();
}

}  // namespace octavo::cli
