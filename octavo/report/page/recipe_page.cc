// The page of a RecipeComparison: recipes side by side, how their tensors are spread, the worst of
// each, and every tensor with every recipe.
#include <algorithm>
#include <cmath>
#include <map>

#include "octavo/base/error.h"
#include "octavo/report/page/page_internal.h"
#include "octavo/report/recipe_comparison.h"

namespace octavo {
namespace {

using page::escaped;
using page::fixed;

constexpr std::size_t kWorst = 5;

std::string head_of(const RecipeComparison& comparison) {
  const auto count = static_cast<std::int64_t>(comparison.recipes.size());
  return text("<header><h1>", escaped(comparison.title), "</h1><p class=\"soft\">",
              page::grouped(count), count == 1 ? " recipe" : " recipes, side by side", " for ",
              escaped(comparison.target), "; nothing was written</p></header>\n");
}

std::string loaders_of(const RecipeOutcome& outcome) {
  std::string loads, reasons;
  for (const std::string& loader : outcome.loads)
    loads += (loads.empty() ? "" : ", ") + escaped(loader);
  for (const auto& [loader, reason] : outcome.does_not_load)
    reasons += text("<li>", escaped(loader), ": ", escaped(reason), "</li>");
  if (loads.empty()) loads = reasons.empty() ? "no server reads this target" : "none";
  return text("<td class=\"a\">", loads,
              reasons.empty() ? ""
                              : text("<details><summary>not in ", outcome.does_not_load.size(),
                                     outcome.does_not_load.size() == 1 ? " other" : " others",
                                     "</summary><ul>", reasons, "</ul></details>"),
              "</td>");
}

std::string side_by_side(const RecipeComparison& comparison) {
  std::string heads, rows;
  heads += page::head_cell("recipe", "the preset", true);
  heads += page::head_cell("size", "of all tensors, those that stay as they are included");
  heads += page::head_cell("of before", "size after over size before");
  heads += page::head_cell("bits", "per quantized weight, scales included");
  heads += page::head_cell("median SQNR dB", "half of the tensors are better");
  heads += page::head_cell("normal weights", "what normal (Gaussian) weights have in this format");
  heads += page::head_cell("worst SQNR dB", "of one tensor");
  heads += page::head_cell("lowest cosine", "of one tensor; 1 is best");
  heads += page::head_cell("loads in", "by the rules of octavo verify; nothing was run", true);
  for (const RecipeOutcome& outcome : comparison.recipes) {
    rows += text("<tr><td class=\"n mono\">", escaped(outcome.recipe), "</td>");
    const CheckpointReport& report = outcome.report;
    const std::vector<std::size_t> worst = report.worst(1);
    if (!outcome.why_not.empty() || worst.empty()) {
      rows += text("<td class=\"a\" colspan=\"8\">",
                   escaped(outcome.why_not.empty() ? "nothing is quantized" : outcome.why_not),
                   "</td></tr>\n");
      continue;
    }
    double cosine = 1;
    for (const TensorReport& tensor : report.tensors)
      if (tensor.measured) cosine = std::min(cosine, tensor.metrics.cosine);
    const double part = static_cast<double>(report.bytes_after) /
                        static_cast<double>(std::max<std::uint64_t>(1, comparison.bytes_before));
    rows +=
        text("<td data-l=\"size\">", page::bytes_text(report.bytes_after),
             "</td><td data-l=\"of before\">", fixed(100 * part, 1), " %</td><td data-l=\"bits\">",
             fixed(report.bits_per_weight, 2), "</td><td data-l=\"median SQNR dB\">",
             fixed(median_sqnr(report), 2), "</td><td data-l=\"normal weights\">",
             fixed(median_expected_sqnr(report), 1), "</td><td data-l=\"worst SQNR dB\">",
             fixed(order_of(report.tensors[worst[0]]), 2), "</td><td data-l=\"lowest cosine\">",
             page::cosine_text(cosine), "</td>", loaders_of(outcome), "</tr>\n");
  }
  return text(
      "<section><h2>Side by side</h2><div class=\"wrap\"><table class=\"cardrows\"><thead><tr>",
      heads, "</tr></thead><tbody>\n", rows, "</tbody></table></div></section>\n");
}

// From the lowest to the highest SQNR of all recipes, in steps of five decibels.
struct Axis {
  double from = INFINITY, to = -INFINITY;
  [[nodiscard]] double at(double sqnr) const { return 1000 * (sqnr - from) / (to - from); }
};
Axis axis_of(const RecipeComparison& comparison) {
  Axis axis;
  const auto take = [&](double sqnr) {
    if (!std::isfinite(sqnr)) return;
    axis.from = std::min(axis.from, 5 * std::floor((sqnr - 0.5) / 5));
    axis.to = std::max(axis.to, 5 * std::ceil((sqnr + 0.5) / 5));
  };
  for (const RecipeOutcome& outcome : comparison.recipes)
    for (const TensorReport& tensor : outcome.report.tensors) {
      if (!tensor.measured) continue;
      take(tensor.metrics.sqnr);
      take(tensor.expected_sqnr);
    }
  return axis;
}

// A stroke for every tensor, and one for normal weights.
std::string spread(const RecipeComparison& comparison) {
  const Axis axis = axis_of(comparison);
  if (!(axis.to > axis.from)) return "";
  std::string out;
  for (const RecipeOutcome& outcome : comparison.recipes) {
    std::string strokes;
    for (const TensorReport& tensor : outcome.report.tensors)
      if (tensor.measured && std::isfinite(tensor.metrics.sqnr))
        strokes += text("M", fixed(axis.at(tensor.metrics.sqnr), 1), " 6v12");
    if (strokes.empty()) continue;
    const double normal = median_expected_sqnr(outcome.report);
    out +=
        text("<div class=\"row\"><div class=\"lab\"><bdi>", escaped(outcome.recipe),
             "</bdi></div><svg viewBox=\"0 0 1000 24\" preserveAspectRatio=\"none\" role=\"img\" "
             "aria-label=\"SQNR of every tensor with ",
             escaped(outcome.recipe),
             "\"><path class=\"rule\" d=\"M0 23h1000\"/><path "
             "class=\"stroke\" d=\"",
             strokes, "\"/>",
             std::isnan(normal)
                 ? ""
                 : text("<path class=\"normal\" d=\"M", fixed(axis.at(normal), 1),
                        " 0v24\"><title>normal weights: ", fixed(normal, 1), " dB</title></path>"),
             "</svg></div>\n");
  }
  const double step = axis.to - axis.from > 60 ? 20 : axis.to - axis.from > 30 ? 10 : 5;
  std::string ticks;
  for (double at = axis.from; at <= axis.to; at += step)
    ticks +=
        text("<span style=\"left:", fixed(axis.at(at) / 10, 2), "%\">", fixed(at, 0), "</span>");
  return text(
      "<section><h2>How the tensors are spread</h2><p class=\"soft small\">A stroke for every "
      "tensor at its SQNR in decibels; the tall one is what normal weights have in that "
      "format.</p>\n<div class=\"map spread\">",
      out, "<div class=\"row\"><div class=\"lab none\">dB</div><div class=\"axis\">", ticks,
      "</div></div></div></section>\n");
}

std::string worst_of_each(const RecipeComparison& comparison) {
  std::string out;
  for (const RecipeOutcome& outcome : comparison.recipes) {
    const page::Grading grading(outcome.report);
    std::string items;
    for (const std::size_t i : outcome.report.worst(kWorst)) {
      const TensorReport& tensor = outcome.report.tensors[i];
      const double above = grading.above(tensor);
      items +=
          text("<li><i class=\"dot g", page::grade_of(above), "\"></i>",
               fixed(tensor.metrics.sqnr, 2), " dB, ", page::signed_text(above),
               " beside normal weights: <code>", page::breakable(tensor.name), "</code></li>\n");
    }
    if (!items.empty())
      out += text("<div class=\"hist\"><h3 class=\"mono\">", escaped(outcome.recipe),
                  "</h3><ol class=\"small plain\">", items, "</ol></div>\n");
  }
  return out.empty() ? ""
                     : text("<section><h2>The worst tensors of each</h2><div class=\"hists\">", out,
                            "</div></section>\n");
}

std::string every_tensor(const RecipeComparison& comparison) {
  struct Row {
    const TensorReport* first = nullptr;
    std::vector<std::string> cells{};
  };
  std::map<std::string_view, std::size_t> places;
  std::vector<Row> all;
  std::string heads = page::head_cell("tensor", "its name in the checkpoint", true) +
                      page::head_cell("shape", "rows × columns");
  std::size_t shown = 0;
  for (const RecipeOutcome& outcome : comparison.recipes) {
    if (!outcome.why_not.empty()) continue;
    heads += page::head_cell(escaped(outcome.recipe), "SQNR in decibels");
    const page::Grading grading(outcome.report);
    for (const TensorReport& tensor : outcome.report.tensors) {
      if (!tensor.measured) continue;
      const auto [at, is_new] = places.try_emplace(tensor.name, all.size());
      if (is_new) all.push_back({.first = &tensor});
      Row& row = all[at->second];
      row.cells.resize(shown + 1);
      row.cells[shown] = text("<td data-l=\"", escaped(outcome.recipe), "\" data-v=\"",
                              fixed(tensor.metrics.sqnr, 4), "\"><i class=\"dot g",
                              page::grade_of(grading.above(tensor)), "\"></i>",
                              fixed(tensor.metrics.sqnr, 2), "</td>");
    }
    ++shown;
  }
  if (all.empty()) return "";
  std::string rows;
  for (Row& row : all) {
    rows += text("<tr><td class=\"n mono\">", page::breakable(row.first->name),
                 "</td><td data-l=\"shape\">", page::shape_text(row.first->shape), "</td>");
    row.cells.resize(shown);
    for (const std::string& cell : row.cells)
      rows += cell.empty() ? std::string("<td data-v=\"-inf\">not quantized</td>") : cell;
    rows += "</tr>\n";
  }
  return text(
      "<section id=\"table\"><h2>Every tensor with every recipe</h2><p class=\"soft "
      "small\">SQNR in decibels; a dot's colour is how far it is from normal weights in "
      "that format.</p>\n",
      page::sortable_table(heads, rows, "tensors"), page::legend(), "</section>\n");
}

}  // namespace

std::string html_of(const RecipeComparison& comparison) {
  return page::document(
      comparison.title,
      text(head_of(comparison), page::knowledge(), side_by_side(comparison), spread(comparison),
           worst_of_each(comparison), every_tensor(comparison)));
}

}  // namespace octavo
