// The output of --dry-run: one line for the tensors of all layers with the same name pattern and
// action.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cli/checkpoint/checkpoint_text.h"
#include "cli/checkpoint/verdict.h"
#include "cli/terminal/terminal.h"
#include "cli/text/number_text.h"
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
};

}  // namespace

std::string without_numbers(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find('.'), name.size());
    const std::string_view part = name.substr(0, end);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) {
      return std::isdigit(c) != 0;
    });
    out += (out.empty() ? "" : ".") + (number ? "*" : std::string(part));
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return out;
}

std::string plan_text(const CheckpointReader& source, const QuantizePlan& plan) {
  std::vector<Line> lines;
  std::int64_t quantized = 0;
  for (const TensorAction& action : plan.actions) {
    quantized += action.quantize;
    Line line{without_numbers(name_of(source, action)), shape_of(source, action),
              action.quantize ? action.preset : "unquantized", 0, 0};
    if (!action.why.empty()) line.what += ": " + action.why;
    auto same = std::find_if(lines.begin(), lines.end(), [&](const Line& known) {
      return known.name == line.name && known.shape == line.shape && known.what == line.what;
    });
    if (same == lines.end()) same = lines.insert(lines.end(), line);
    same->after += bytes_after(action);
    ++same->count;
  }
  const Style style(stdout);
  std::string out = style.bold(fmt::format("{:>5}  {:<48} {:>14} {:>10}  {}", "count", "tensor",
                                           "shape", "size after", "becomes")) +
                    "\n";
  for (const Line& line : lines)
    out += fmt::format("{:>5}  {:<48} {:>14} {:>10}  {}\n", line.count, short_name(line.name, 48),
                       line.shape, bytes_text(static_cast<double>(line.after)),
                       octavo::shown(line.what, 160));
  const auto before = static_cast<double>(plan.bytes_before),
             after = static_cast<double>(plan.bytes_after);
  out += fmt::format("\n  size      {} -> {} ({:.1f} %) in {} file{}\n", bytes_text(before),
                     bytes_text(after), before > 0 ? 100 * after / before : 100.0,
                     plan.files.size(), plan.files.size() == 1 ? "" : "s");
  out += fmt::format("  tensors   {} of {} quantized, {:.2f} bits per weight\n", quantized,
                     plan.actions.size(), plan.bits_per_weight);
  out += notes_text(plan.notes);
  return out;
}

}  // namespace octavo::cli
