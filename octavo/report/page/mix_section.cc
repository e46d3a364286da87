// How the recipes of a mixed plan were chosen: error against bits, and a table of the model's
// parts.
#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/report/page/page_internal.h"
#include "octavo/report/page/page_scale_internal.h"

namespace octavo::page {
namespace {

constexpr double kWidth = 1000, kHeight = 380, kLeft = 54, kRight = 60, kTop = 22, kBottom = 44;

std::string percent(double error) { return fixed(100 * std::sqrt(error), 2) + " %"; }

std::string tip(const MixPoint& point, const MixResult& mix) {
  std::string out = text(point.recipe.empty() ? std::string("mix") : escaped(point.recipe), ": ",
                         fixed(point.bits_per_weight, 3), " bits, ", bytes_text(point.bytes),
                         ", error ", percent(point.error));
  std::int64_t all = 0;
  for (const std::int64_t elements : point.elements) all += elements;
  for (std::size_t i = 0; i < point.elements.size(); ++i)
    if (point.elements[i] > 0)
      out += text("; ", escaped(mix.recipes[i]), " ",
                  share_text(static_cast<double>(point.elements[i]) /
                             static_cast<double>(std::max<std::int64_t>(1, all))));
  return out;
}

// Where a label's middle and baseline are; and whether two of them would be read as one.
struct Label {
  double x, y, half_width;

  [[nodiscard]] bool meets(const Label& other) const {
    return std::abs(x - other.x) < half_width + other.half_width && std::abs(y - other.y) < 14;
  }
};

class Chart {
 public:
  explicit Chart(const MixResult& mix)
      : mix_(mix), across_(values(&bits), false), up_(values(&sqnr_of), false) {}

  [[nodiscard]] std::string drawn() const {
    std::string out = axes(), path;
    for (const MixPoint& point : mix_.frontier) {
      if (!std::isfinite(sqnr_of(point))) continue;
      path += text(path.empty() ? "M" : "L", fixed(x(point), 1), " ", fixed(y(point), 1));
    }
    if (path.find('L') != path.npos) out += text("<path class=\"line0\" d=\"", path, "\"/>");
    for (const MixPoint& point : mix_.frontier) out += circle(point, "line0", 3);
    std::vector<Label> labels;
    const std::string chosen = mark(mix_.chosen, "line2", 7, "chosen", labels);
    for (const MixPoint& point : mix_.uniform) out += mark(point, "line1", 5, point.recipe, labels);
    out += chosen;
    return text(
        "<figure class=\"chart\"><figcaption>SQNR in decibels, by bits per "
        "weight</figcaption><svg viewBox=\"0 0 ",
        kWidth, " ", kHeight, "\" role=\"img\" aria-label=\"Error of mixes by bits per weight\">",
        out, "<text x=\"", fixed((kLeft + kWidth - kRight) / 2, 1), "\" y=\"",
        fixed(kHeight - 6, 1),
        "\" text-anchor=\"middle\">bits per weight, scales included</text></svg></figure>\n");
  }

 private:
  static double bits(const MixPoint& point) { return point.bits_per_weight; }

  // Of points that can be drawn; without any loss there is no decibel.
  [[nodiscard]] std::vector<double> values(double (*of)(const MixPoint&)) const {
    std::vector<double> out;
    const auto add = [&](const MixPoint& point) {
      if (std::isfinite(sqnr_of(point))) out.push_back(of(point));
    };
    for (const MixPoint& point : mix_.frontier) add(point);
    for (const MixPoint& point : mix_.uniform) add(point);
    add(mix_.chosen);
    return out;
  }
  [[nodiscard]] double x_of(double value) const {
    return kLeft + across_.share(value) * (kWidth - kLeft - kRight);
  }
  [[nodiscard]] double y_of(double value) const {
    return kHeight - kBottom - up_.share(value) * (kHeight - kTop - kBottom);
  }
  [[nodiscard]] double x(const MixPoint& point) const { return x_of(point.bits_per_weight); }
  [[nodiscard]] double y(const MixPoint& point) const { return y_of(sqnr_of(point)); }

  // Below or above the point, or further off where another label is.
  [[nodiscard]] Label free_place(const MixPoint& point, const std::string& label,
                                 const std::vector<Label>& taken) const {
    constexpr double kLetter = 8;  // px; most are narrower
    Label place{x(point), 0, kLetter * static_cast<double>(label.size()) / 2};
    for (const double below : {18.0, -11.0, 33.0, -26.0, 48.0, -41.0}) {
      place.y = y(point) + below;
      if (std::none_of(taken.begin(), taken.end(),
                       [&](const Label& other) { return place.meets(other); }))
        break;
    }
    return place;
  }

  [[nodiscard]] std::string mark(const MixPoint& point, std::string_view color, double radius,
                                 const std::string& label, std::vector<Label>& taken) const {
    if (!std::isfinite(sqnr_of(point))) return "";
    const Label& place = taken.emplace_back(free_place(point, label, taken));
    return circle(point, color, radius) + text("<text x=\"", fixed(place.x, 1), "\" y=\"",
                                               fixed(place.y, 1), "\" text-anchor=\"middle\">",
                                               escaped(label), "</text>");
  }

  [[nodiscard]] std::string circle(const MixPoint& point, std::string_view color,
                                   double radius) const {
    if (!std::isfinite(sqnr_of(point))) return "";
    return text("<circle class=\"mark ", color, "\" cx=\"", fixed(x(point), 1), "\" cy=\"",
                fixed(y(point), 1), "\" r=\"", radius, "\"><title>", tip(point, mix_),
                "</title></circle>");
  }

  [[nodiscard]] std::string axes() const {
    std::string out;
    for (const double at : up_.ticks())
      out += text("<path class=\"rule\" d=\"M", fixed(kLeft, 1), " ", fixed(y_of(at), 1), "H",
                  fixed(kWidth - kRight, 1), "\"/><text x=\"", fixed(kLeft - 8, 1), "\" y=\"",
                  fixed(y_of(at) + 4, 1), "\" text-anchor=\"end\">",
                  fixed(at, up_.step < 1 ? 1 : 0), "</text>");
    for (const double at : across_.ticks())
      out += text("<path class=\"rule\" d=\"M", fixed(x_of(at), 1), " ", fixed(kTop, 1), "V",
                  fixed(kHeight - kBottom, 1), "\"/><text x=\"", fixed(x_of(at), 1), "\" y=\"",
                  fixed(kHeight - kBottom + 18, 1), "\" text-anchor=\"middle\">",
                  fixed(at, across_.step < 1 ? 1 : 0), "</text>");
    return out;
  }

  const MixResult& mix_;
  Scale across_, up_;
};

std::string units_table(const MixResult& mix) {
  std::string heads = head_cell("part", "its first matrix; what servers load as one is one", true);
  heads += head_cell("recipe", "what it got", true);
  heads += head_cell("bits", "per weight, scales included");
  heads += head_cell("weights", "how many it has");
  heads += head_cell("error", "root of the sum over its matrices of relative squared errors");
  for (std::size_t i = 0; i + 1 < mix.recipes.size(); ++i)
    heads += head_cell(escaped(mix.recipes[i]), "its error by this recipe");
  std::string rows;
  for (const MixUnit& unit : mix.units) {
    rows +=
        text("<tr><td class=\"n mono\">", breakable(unit.name), "</td><td class=\"n\">",
             escaped(unit.recipe), "</td><td data-l=\"bits\">", fixed(unit.bits_per_weight, 3),
             "</td><td data-l=\"weights\" data-v=\"", unit.elements, "\">", grouped(unit.elements),
             "</td><td data-l=\"error\">", percent(unit.error), "</td>");
    for (std::size_t i = 0; i + 1 < mix.recipes.size(); ++i) {
      const auto at = std::find(unit.recipes.begin(), unit.recipes.end(), mix.recipes[i]);
      rows += text("<td data-l=\"", escaped(mix.recipes[i]), "\">",
                   at == unit.recipes.end()
                       ? std::string("-")
                       : percent(unit.errors[static_cast<std::size_t>(at - unit.recipes.begin())]),
                   "</td>");
    }
    rows += "</tr>\n";
  }
  return sortable_table(heads, rows, "parts");
}

}  // namespace

std::string mix_section(const MixResult& mix) {
  std::string key =
      "<span><i class=\"k0\"></i>mixes of least error</span><span><i "
      "class=\"k1\"></i>one recipe for all</span><span><i class=\"k2\"></i>what was "
      "chosen</span>";
  std::string others;
  for (const std::string& recipe : mix.left_out)
    others += text(others.empty() ? "" : ", ", escaped(recipe));
  return text(
      "<section id=\"mix\"><h2>How recipes were chosen</h2><p class=\"soft small\">",
      escaped(mix.budget), ": ", fixed(mix.chosen.bits_per_weight, 3),
      " bits per weight were taken, error ", percent(mix.chosen.error), ", ",
      fixed(sqnr_of(mix.chosen), 2), " dB. Errors are ", escaped(mix.measure),
      ", in the mean over matrices. Higher is better, and further left.",
      others.empty()
          ? std::string()
          : text(" Not in the mix, as no loader reads them beside the others: ", others, "."),
      "</p><div class=\"key\">", key, "</div>\n", Chart(mix).drawn(), units_table(mix),
      "</section>\n");
}

}  // namespace octavo::page
