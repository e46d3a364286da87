// Layers from left to right, modules from top to bottom, a colour for how good each came out. A row
// is one stretched SVG, so that a map of any number of layers fits a window of any width.
#include <algorithm>
#include <cmath>
#include <map>

#include "octavo/base/error.h"
#include "octavo/report/page/page_internal.h"

namespace octavo::page {
namespace {

struct Cell {
  const TensorReport* worst = nullptr;
  std::int64_t tensors = 0;
};

// One stack of layers ("model.layers"): modules in the order they first occur.
struct Stack {
  std::string name;
  std::vector<std::string> modules;
  std::map<std::int64_t, std::size_t> layers;  // number -> column, filled in at the end
  std::map<std::pair<std::string, std::int64_t>, Cell> cells;
};

std::vector<Stack> stacks_of(const CheckpointReport& report) {
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
    ++cell.tensors;
    if (cell.worst == nullptr || tensor.metrics.sqnr < cell.worst->metrics.sqnr)
      cell.worst = &tensor;
  }
  for (Stack& stack : stacks) {
    std::size_t column = 0;
    for (auto& [number, at] : stack.layers) at = column++;
  }
  return stacks;
}

using GradeOf = int (*)(const Grading&, const ErrorMetrics&);

std::string row_of(const Stack& stack, const std::string& module, const Grading& grading,
                   GradeOf grade_of) {
  std::string rects;
  for (const auto& [layer, column] : stack.layers) {
    const auto found = stack.cells.find({module, layer});
    if (found == stack.cells.end()) {
      rects += text("<rect class=\"gx\" x=\"", column, "\" width=\".92\" height=\"1\"/>");
      continue;
    }
    const TensorReport& tensor = *found->second.worst;
    const std::string name = escaped(tensor.module.empty() ? tensor.name : tensor.module);
    rects += text(
        "<rect class=\"hit g", grade_of(grading, tensor.metrics), "\" x=\"", column,
        "\" width=\".92\" height=\"1\" data-m=\"", name, "\"><title>", name, "\n",
        fixed(tensor.metrics.sqnr, 2), " dB, cosine ", cosine_text(tensor.metrics.cosine),
        tensor.preset.empty() ? "" : ", ", escaped(tensor.preset),
        found->second.tensors > 1 ? text("\nthe worst of ", found->second.tensors, " tensors") : "",
        "</title></rect>");
  }
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

std::string map_of(const std::vector<Stack>& stacks, const Grading& grading, GradeOf grade_of) {
  std::string out;
  for (const Stack& stack : stacks) {
    out += text("<div class=\"map\"><h3 class=\"mono\">", escaped(stack.name), "</h3>\n");
    for (const std::string& module : stack.modules) out += row_of(stack, module, grading, grade_of);
    out += axis_of(stack) + "</div>\n";
  }
  return out;
}

// What the colours are, and from which number on.
template <typename Label>
std::string legend(const Grading& grading, Label&& label) {
  std::string out = "<div class=\"scale\">";
  if (grading.flat) {
    out += text("<span><i class=\"g", grading.grade((grading.worst + grading.best) / 2),
                "\"></i>all alike: ", label(grading.worst), " to ", label(grading.best), "</span>");
  } else {
    for (int i = 0; i < kGrades; ++i)
      out += text("<span><i class=\"g", i, "\"></i>", i == 0 ? "worst: " : "from ",
                  label(grading.lowest + i * grading.step),
                  i + 1 == kGrades ? text(" to ", label(grading.best)) : "", "</span>");
  }
  return out + "<span><i class=\"gx\"></i>not quantized</span></div>\n";
}

}  // namespace

std::string heat_maps(const CheckpointReport& report) {
  const std::vector<Stack> stacks = stacks_of(report);
  if (stacks.empty()) return "";
  const Grading by_sqnr = sqnr_grading(report), by_cosine = cosine_grading(report);
  return text(
      "<section><h2>Layer by layer</h2><p class=\"soft small\">Colours run from the worst of this "
      "model (red) to its best (blue). A cell's name and numbers appear under the "
      "pointer.</p>\n<div class=\"tabs\">"
      "<input type=\"radio\" name=\"map\" id=\"map-sqnr\" checked><label for=\"map-sqnr\">SQNR"
      "</label><input type=\"radio\" name=\"map\" id=\"map-cosine\"><label "
      "for=\"map-cosine\">Cosine"
      "</label>\n<div class=\"pane\">",
      map_of(stacks, by_sqnr,
             [](const Grading& g, const ErrorMetrics& m) { return g.grade(m.sqnr); }),
      legend(by_sqnr, [](double at) { return fixed(at, 1) + " dB"; }),
      "</div>\n<div class=\"pane\">",
      map_of(stacks, by_cosine,
             [](const Grading& g, const ErrorMetrics& m) { return g.grade(nines(m.cosine)); }),
      legend(by_cosine, [](double at) { return cosine_text(1 - std::pow(10, -at)); }),
      "</div></div></section>\n");
}

}  // namespace octavo::page
