// Layers from left to right, modules from top to bottom, a colour for how good each came out. A row
// is one stretched SVG, so that a map of any number of layers fits a window of any width.
#include <algorithm>
#include <cmath>
#include <map>

#include "octavo/base/error.h"
#include "octavo/report/page/page_internal.h"

namespace octavo::page {
namespace {

// Several tensors (the experts of a layer) have one cell: that of the furthest from normal.
struct Cell {
  const TensorReport* shown = nullptr;
  double above = 0;
  std::int64_t tensors = 0;
};

// One stack of layers ("model.layers"): modules in the order they first occur.
struct Stack {
  std::string name;
  std::vector<std::string> modules;
  std::map<std::int64_t, std::size_t> layers;  // number -> column, filled in at the end
  std::map<std::pair<std::string, std::int64_t>, Cell> cells;
};

using AboveOf = double (Grading::*)(const TensorReport&) const;

std::vector<Stack> stacks_of(const CheckpointReport& report, const Grading& grading,
                             AboveOf above_of) {
  std::vector<Stack> stacks;
  for (const TensorReport& tensor : report.tensors) {
    if (!tensor.measured) continue;
    Place place = place_of(tensor.module.empty() ? tensor.name : tensor.module);
    if (place.layer < 0) continue;
    auto stack = std::find_if(stacks.begin(), stacks.end(),
                              [&](const Stack& known) { return known.name == place.stack; });
    if (stack == stacks.end()) stack = stacks.insert(stack, Stack{place.stack, {}, {}, {}});
    if (std::find(stack->modules.begin(), stack->modules.end(), place.module) ==
        stack->modules.end())
      stack->modules.push_back(place.module);
    stack->layers[place.layer] = 0;
    Cell& cell = stack->cells[{place.module, place.layer}];
    const double above = (grading.*above_of)(tensor);
    // What has no error at all is the last to be shown.
    const auto far = [](double at) { return at == INFINITY ? -1 : std::fabs(at); };
    if (cell.tensors++ == 0 || far(above) > far(cell.above)) {
      cell.shown = &tensor;
      cell.above = above;
    }
  }
  for (Stack& stack : stacks) {
    std::size_t column = 0;
    for (auto& [number, at] : stack.layers) at = column++;
  }
  return stacks;
}

std::string beside_normal(const TensorReport& tensor, const Grading& grading) {
  const double above = grading.above(tensor);
  if (!std::isfinite(above)) return above > 0 ? "no error" : "some values are NaN or Inf";
  return text(fixed(tensor.metrics.sqnr, 2), " dB, ", fixed(std::fabs(above), 1), " dB ",
              above < 0 ? "below " : "above ",
              std::isnan(tensor.expected_sqnr) ? "the median" : "normal weights", " (",
              fixed(grading.expected_sqnr(tensor), 1), ")");
}

// A mark stands at the top of its cell for a tensor far above normal ones, at the bottom for one
// far below; a line, because cells are stretched.
std::string mark_of(double above, std::size_t column) {
  if (!is_far_off(above)) return "";
  return text("<path class=\"mark\" d=\"M", column, above < 0 ? ".16 .8" : ".16 .2", "h.6\"/>");
}

std::string row_of(const Stack& stack, const std::string& module, const Grading& grading) {
  std::string rects, marks;
  for (const auto& [layer, column] : stack.layers) {
    const auto found = stack.cells.find({module, layer});
    if (found == stack.cells.end()) {
      rects += text("<rect class=\"gx\" x=\"", column, "\" width=\".92\" height=\"1\"/>");
      continue;
    }
    const Cell& cell = found->second;
    const TensorReport& tensor = *cell.shown;
    const std::string name = escaped(tensor.module.empty() ? tensor.name : tensor.module);
    rects += text("<rect class=\"hit g", grade_of(cell.above), "\" x=\"", column,
                  "\" width=\".92\" height=\"1\" data-m=\"", name, "\"><title>", name, "\n",
                  beside_normal(tensor, grading), "\ncosine ", cosine_text(tensor.metrics.cosine),
                  tensor.preset.empty() ? "" : ", ", escaped(tensor.preset),
                  cell.tensors > 1 ? text("\nthe furthest off of ", cell.tensors, " tensors") : "",
                  "</title></rect>");
    marks += mark_of(cell.above, column);
  }
  rects += marks;  // over the cells
  return text("<div class=\"row\"><div class=\"lab\" title=\"", escaped(module), "\"><bdi>",
              escaped(module.empty() ? "(itself)" : module), "</bdi></div><svg viewBox=\"0 0 ",
              stack.layers.size(), " 1\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"",
              escaped(module), "\">", rects, "</svg></div>\n");
}

// A dozen numbers at most, the first and those of round distance.
std::string axis_of(const Stack& stack) {
  const std::size_t count = stack.layers.size();
  std::size_t every = 1;
  for (const std::size_t next : {2, 5, 10, 20, 25, 50, 100, 200, 500, 1000})
    if (count / every > 12) every = next;
  std::string out;
  for (const auto& [layer, column] : stack.layers)
    if (column % every == 0)
      out += text("<span style=\"left:",
                  fixed(100 * (static_cast<double>(column) + 0.46) / static_cast<double>(count), 2),
                  "%\">", layer, "</span>");
  return text("<div class=\"row\"><div class=\"lab none\">layer</div><div class=\"axis\">", out,
              "</div></div>\n");
}

std::string map_of(const CheckpointReport& report, const Grading& grading, AboveOf above_of) {
  std::string out;
  for (const Stack& stack : stacks_of(report, grading, above_of)) {
    out += text("<div class=\"map\"><h3 class=\"mono\">", escaped(stack.name), "</h3>\n");
    for (const std::string& module : stack.modules) out += row_of(stack, module, grading);
    out += axis_of(stack) + "</div>\n";
  }
  return out;
}

// "mxfp4 19.1 dB, fp8-channel 31.5 dB": what is expected, from the least to the most of a format.
std::string anchors_of(const CheckpointReport& report, const Grading& grading) {
  struct Anchor {
    std::string name;
    double least = INFINITY, most = -INFINITY;
  };
  std::vector<Anchor> anchors;
  for (const TensorReport& tensor : report.tensors) {
    if (!tensor.measured || std::isnan(tensor.expected_sqnr)) continue;
    auto at = std::find_if(anchors.begin(), anchors.end(),
                           [&](const Anchor& known) { return known.name == tensor.preset; });
    if (at == anchors.end()) at = anchors.insert(at, Anchor{.name = tensor.preset});
    at->least = std::min(at->least, tensor.expected_sqnr);
    at->most = std::max(at->most, tensor.expected_sqnr);
  }
  std::string out;
  for (const Anchor& anchor : anchors) {
    const std::string least = fixed(anchor.least, 1), most = fixed(anchor.most, 1);
    out += text(out.empty() ? "" : ", ", escaped(anchor.name), " ", least,
                least == most ? "" : text(" to ", most), " dB");
  }
  if (grading.unknown() > 0)
    out += text(out.empty() ? "" : "; ", "of ", grouped(grading.unknown()),
                " tensors the format is not known, and their median, ",
                fixed(grading.median_sqnr(), 1), " dB, stands for it");
  return out;
}

// The tensors that are marked, the furthest off first.
std::string far_off_list(const CheckpointReport& report, const Grading& grading) {
  constexpr std::size_t kShown = 8;
  std::vector<std::pair<double, const TensorReport*>> far;
  for (const TensorReport& tensor : report.tensors)
    if (const double above = tensor.measured ? grading.above(tensor) : 0; is_far_off(above))
      far.emplace_back(std::fabs(above), &tensor);
  if (far.empty())
    return "<p class=\"small\">No tensor is 3 dB or more away from normal weights.</p>\n";
  std::stable_sort(far.begin(), far.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string items;
  for (std::size_t i = 0; i < std::min(kShown, far.size()); ++i) {
    const TensorReport& tensor = *far[i].second;
    const bool high = grading.above(tensor) > 0;
    items += text("<li><code>", escaped(tensor.name), "</code>: ", beside_normal(tensor, grading),
                  high ? text(". A few large values hold most of the energy and come out well; of "
                              "the others ",
                              share_text(tensor.metrics.flushed_share), " became zero")
                       : "",
                  "</li>\n");
  }
  if (far.size() > kShown)
    items += text("<li>and ", grouped(static_cast<std::int64_t>(far.size() - kShown)),
                  " more: order the table by \"beside normal\"</li>\n");
  return text("<h3>Far from normal weights</h3><ul class=\"small\">", items, "</ul>\n");
}

}  // namespace

std::string legend() {
  const auto from = [](int grade) { return fixed(std::fabs(grade_begins(grade)), 0); };
  std::string out = "<div class=\"scale\">";
  const auto key = [&](int grade, std::string_view what) {
    out += text("<span><i class=\"g", grade, "\"></i>", what, "</span>");
  };
  key(0, text(from(1), " dB below normal weights, or more"));
  for (int grade = 1; grade < kExpectedGrade; ++grade)
    key(grade, text(from(grade + 1), " to ", from(grade), " below"));
  key(kExpectedGrade, "as normal weights");
  key(kExpectedGrade + 1,
      text(from(kExpectedGrade + 1), " to ", from(kExpectedGrade + 2), " above"));
  key(kExactGrade - 1, text("more than ", from(kExactGrade - 1), " above"));
  key(kExactGrade, "no error");
  return out + "<span><i class=\"gx\"></i>not quantized</span></div>\n";
}

std::string heat_maps(const CheckpointReport& report) {
  const Grading grading(report);
  const std::string by_sqnr = map_of(report, grading, &Grading::above);
  if (by_sqnr.empty()) return "";
  return text(
      "<section><h2>Layer by layer</h2><p class=\"soft small\">A colour says how far a tensor is "
      "from what normal (Gaussian) weights have in its format: ",
      anchors_of(report, grading),
      ". A tensor that is 3 dB or more away has a mark, at the bottom of its cell if it is worse, "
      "at the top if it is above. A cell's name and numbers appear under the pointer.</p>\n"
      "<div class=\"tabs\">"
      "<input type=\"radio\" name=\"map\" id=\"map-sqnr\" checked><label for=\"map-sqnr\">SQNR"
      "</label><input type=\"radio\" name=\"map\" id=\"map-cosine\"><label "
      "for=\"map-cosine\">Cosine"
      "</label>\n<div class=\"pane\">",
      by_sqnr, "</div>\n<div class=\"pane\">", map_of(report, grading, &Grading::above_by_cosine),
      "</div></div>\n", legend(), far_off_list(report, grading), "</section>\n");
}

}  // namespace octavo::page
