// The picture of one format: heading and limits here, the number lines in plot_line.cc, the
// logarithmic panels in plot_log.cc.

#include "cli/plot/plot.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"

namespace octavo::cli {
namespace {

void draw_fields(Svg& svg, const Format& format) {
  constexpr double kBox = 26, kTop = 26, kHeight = 30;
  double x = kPlotRight - kBox * format.bits();
  const auto field = [&](int bits, std::string_view letter, std::string_view css_class) {
    for (int bit = 0; bit < bits; ++bit, x += kBox) {
      svg.rect(x + 1, kTop, kBox - 2, kHeight, css_class, 3);
      svg.text(x + kBox / 2, kTop + 20, letter, "bit", "middle");
    }
  };
  field(format.is_signed ? 1 : 0, "s", "field-sign");
  field(format.exponent_bits, "e", "field-exponent");
  field(format.mantissa_bits, format.twos_complement ? "i" : "m", "field-mantissa");
  std::string legend = format.is_signed ? "1 sign" : "no sign";
  if (format.exponent_bits > 0)
    legend += formatted(" · {} exponent, bias {}", format.exponent_bits, format.bias);
  legend += format.twos_complement
                ? formatted(" · {} integer, two's complement", format.mantissa_bits)
                : formatted(" · {} mantissa", format.mantissa_bits);
  svg.text(kPlotRight, kTop + kHeight + 19, legend, "small", "end");
}

void draw_key(Svg& svg, double y) {
  svg.rect(kPlotRight - 176, y - 9, 10, 10, "key-normal", 2);
  svg.text(kPlotRight - 161, y, "normal", "small");
  svg.rect(kPlotRight - 100, y - 9, 10, 10, "key-subnormal", 2);
  svg.text(kPlotRight - 85, y, "subnormal", "small");
}

void draw_facts(Svg& svg, const FormatFacts& facts, double y) {
  struct Fact {
    std::string label, value, exact;
  };
  const auto number = [](std::string label, double value) {
    int exponent = 0;
    const std::string plain = short_number(value), pretty = number_label(value);
    if (plain != pretty) return Fact{std::move(label), pretty, formatted("{:.6g}", value)};
    const bool power = is_power_of_two(value, &exponent) && value != 1;
    return Fact{std::move(label), plain, power ? "= " + power_label(exponent) : ""};
  };
  std::string nan;
  for (const std::string& range : facts.nan_ranges) nan += (nan.empty() ? "" : ", ") + range;
  const std::vector<Fact> row{number("largest", facts.max),
                              number("smallest normal", facts.min_normal),
                              number("smallest positive", facts.min_positive),
                              number("epsilon, the step above 1", facts.epsilon),
                              {"finite values", grouped(facts.finite_values),
                               formatted("in {} codes", grouped(facts.codes))},
                              {"NaN", facts.nan_ranges.empty() ? "none" : "yes", nan},
                              {"infinity · minus zero",
                               formatted("{} · {}", facts.format.has_inf ? "yes" : "no",
                                         facts.format.has_negative_zero() ? "yes" : "no"),
                               ""}};
  const double width = (kPlotRight - kPlotLeft) / static_cast<double>(row.size());
  svg.rect(kPlotLeft, y, kPlotRight - kPlotLeft, 68, "card", 6);
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double x = kPlotLeft + 14 + width * static_cast<double>(i);
    svg.text(x, y + 19, row[i].label, "fact");
    svg.text(x, y + 41, row[i].value, "value");
    svg.text(x, y + 58, row[i].exact, "exact");
  }
}

}  // namespace

std::string plot_format(const FormatFacts& facts) {
  const std::vector<PlotValue> values = positive_values(facts.format);
  const bool zoom = needs_zoom(facts);
  const double height = zoom ? 1000 : 804;
  Svg svg(kPlotWidth, height, formatted("The number line of {}", facts.name),
          formatted("{} has {} finite values from {} to {}; the smallest positive one is {}.",
                    facts.name, facts.finite_values, short_number(facts.lowest),
                    short_number(facts.max), short_number(facts.min_positive)),
          kPlotStyle);
  svg.text(kPlotLeft, 58, facts.name, "name");
  svg.text(kPlotLeft, 84,
           facts.note.empty() ? formatted("{} bits", facts.format.bits()) : facts.note, "note");
  draw_fields(svg, facts.format);
  draw_facts(svg, facts, 104);
  if (facts.subnormals > 0) draw_key(svg, 204);
  double y = draw_whole_line(svg, facts, values, 208);
  if (zoom) y = draw_around_zero(svg, facts, values, y + 8);
  draw_log_panels(svg, facts, values, y + 44);
  return std::move(svg).finish();
}

}  // namespace octavo::cli
