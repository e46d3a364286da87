// The output of --dry-run: one line for the tensors of all layers with the same name pattern and
// action.

#include <algorithm>
#include <map>

#include "cli/checkpoint/checkpoint_text.h"
#include "cli/checkpoint/name_column.h"
#include "cli/checkpoint/name_group.h"
#include "cli/checkpoint/verdict.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/number_text.h"
#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/safetensors/header_writer.h"

namespace octavo::cli {
namespace {

std::string shape_of(const CheckpointReader& source, const TensorAction& action) {
  std::string out;
  const auto add = [&](auto extent) { out += (out.empty() ? "" : " x ") + std::to_string(extent); };
  if (action.quantize)
    for (int i = 0; i < action.weight.shape.rank(); ++i) add(action.weight.shape[i]);
  else
    for (const std::uint64_t extent : source.tensors()[action.tensor].entry->shape) add(extent);
  return out.empty() ? "scalar" : out;
}

struct Line {
  std::string name, shape, what;
  std::uint64_t after = 0;
  std::int64_t count = 0;
  NumbersOf numbers{};
};

constexpr std::size_t kNameWidth = 48, kBeside = 60;

}  // namespace

std::string plan_text(const CheckpointReader& source, const QuantizePlan& plan) {
  std::vector<Line> lines;
  std::map<std::string, int> uses;  // how many lines have a name
  std::int64_t quantized = 0;
  for (const TensorAction& action : plan.actions) {
    quantized += action.quantize;
    Line line{without_numbers(name_of(source, action)), shape_of(source, action),
              action.quantize ? action.preset : "unquantized"};
    if (!action.why.empty()) line.what += ": " + action.why;
    auto same = std::find_if(lines.begin(), lines.end(), [&](const Line& known) {
      return known.name == line.name && known.shape == line.shape && known.what == line.what;
    });
    if (same == lines.end()) {
      same = lines.insert(lines.end(), line);
      ++uses[line.name];
    }
    same->after += bytes_after(action);
    same->numbers.add(name_of(source, action));
    ++same->count;
  }
  NameColumn names(kNameWidth, kBeside);
  for (Line& line : lines) {
    // Layers with different fates are told apart.
    if (uses[line.name] > 1) line.name = line.numbers.in(line.name);
    names.fit(line.name);
  }
  const Style style(stdout);
  std::string out =
      style.bold(names.row(formatted("{:>5}  ", "count"), "tensor",
                           formatted(" {:>14} {:>10}  {}", "shape", "size after", "becomes"))) +
      "\n";
  for (const Line& line : lines)
    out += names.row(formatted("{:>5}  ", line.count), line.name,
                     formatted(" {:>14} {:>10}  {}", line.shape,
                               bytes_text(static_cast<double>(line.after)),
                               octavo::shown(line.what, 400))) +
           "\n";
  const auto before = static_cast<double>(plan.bytes_before),
             after = static_cast<double>(plan.bytes_after);
  out +=
      formatted("\n  size      {} -> {} ({:.1f} %) in {}\n", bytes_text(before), bytes_text(after),
                before > 0 ? 100 * after / before : 100.0, counted(plan.files.size(), "file"));
  out += formatted("  tensors   {} of {} quantized, {:.2f} bits per weight\n", quantized,
                   plan.actions.size(), plan.bits_per_weight);
  out += notes_text(plan.notes);
  return out;
}

}  // namespace octavo::cli
