// octavo inspect: lists the tensors of a checkpoint.

#include <map>
#include <memory>

#include "cli/checkpoint/inspect_tree.h"
#include "cli/checkpoint/name_column.h"
#include "cli/checkpoint/name_group.h"
#include "cli/command.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/input_name.h"
#include "cli/text/number_text.h"
#include "octavo/base/count_text.h"
#include "octavo/base/error.h"
#include "octavo/pipeline/inspect_checkpoint.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo inspect model/                      tensors of the same kind in one line
  octavo inspect model/ --all --stats        every tensor, with the statistics of its values
  octavo inspect model.safetensors --tree    as a tree of modules
  octavo inspect out/ --json                 for a program to read

Of a quantized checkpoint codes and scales are shown as one weight; statistics are those of the
values they stand for.)";

constexpr std::size_t kNameWidth = 48, kCountWidth = 7;
// The other columns of a line; types are as long as they are.
constexpr std::size_t kBeside = 40, kBesideStatistics = 86;

struct Arguments {
  std::string input;
  bool all = false, stats = false, tree = false;
};

std::string statistics_text(const std::optional<TensorStatistics>& statistics) {
  if (!statistics) return "";
  const TensorStatistics& s = *statistics;
  std::string out = formatted("  {:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g}", s.least, s.most,
                              s.mean(), s.deviation());
  if (s.zero > 0) out += formatted("  {} zero", grouped(s.zero));
  if (s.nan > 0) out += formatted("  {} NaN", grouped(s.nan));
  if (s.inf > 0) out += formatted("  {} Inf", grouped(s.inf));
  return out;
}

std::string table_text(std::vector<InspectedTensor> tensors, bool all, bool stats) {
  const Style style(stdout);
  std::string out;
  if (all || stats) {
    NameColumn names(kNameWidth, stats ? kBesideStatistics : kBeside);
    for (const InspectedTensor& t : tensors) names.fit(t.name);
    out = style.bold(names.row("", "tensor",
                               formatted(" {:>16} {:>10}  {:<10}{}", "shape", "size", "type",
                                         stats ? formatted("  {:>10} {:>10} {:>10} {:>10}", "min",
                                                           "max", "mean", "std")
                                               : ""))) +
          "\n";
    for (const InspectedTensor& t : tensors)
      out += names.row("", t.name,
                       formatted(" {:>16} {:>10}  {:<10}{}", shape_text(t),
                                 bytes_text(static_cast<double>(t.bytes)), short_type(t),
                                 stats ? statistics_text(t.statistics) : "")) +
             "\n";
    return out;
  }
  struct Line {
    InspectedTensor first;
    std::int64_t count = 0;
    NumbersOf numbers{};
  };
  std::vector<Line> lines;
  std::map<std::string, int> uses;  // how many lines have a name
  std::map<std::string, std::size_t> known;
  for (InspectedTensor& tensor : tensors) {
    const std::string name = without_numbers(tensor.name);
    const auto [at, is_new] =
        known.try_emplace(text(name, '\0', shape_text(tensor), '\0', tensor.type), lines.size());
    if (is_new) {
      lines.push_back({tensor, 1});
      lines.back().first.name = name;
      ++uses[name];
    } else {
      ++lines[at->second].count;
      lines[at->second].first.bytes += tensor.bytes;
    }
    lines[at->second].numbers.add(tensor.name);
  }
  NameColumn names(kNameWidth, kBeside + kCountWidth);
  for (Line& line : lines) {
    if (uses[line.first.name] > 1) line.first.name = line.numbers.in(line.first.name);
    names.fit(line.first.name);
  }
  out = style.bold(names.row(formatted("{:>5}  ", "count"), "tensor",
                             formatted(" {:>16} {:>10}  {}", "shape", "size", "type"))) +
        "\n";
  for (const Line& line : lines)
    out +=
        names.row(formatted("{:>5}  ", line.count), line.first.name,
                  formatted(" {:>16} {:>10}  {}", shape_text(line.first),
                            bytes_text(static_cast<double>(line.first.bytes)), line.first.type)) +
        "\n";
  return out;
}

int run_inspect(const Arguments& arguments, const Globals& globals) {
  check_model("inspect", arguments.input);
  const Inspection seen = inspect_checkpoint(arguments.input, {.statistics = arguments.stats});
  if (!seen.problem.empty())
    say(text("octavo: [inspect] note: ", seen.problem, "; shown as it is stored"));
  if (globals.json) {
    print(json_of(seen) + "\n");
    return kGood;
  }
  print(arguments.tree ? tree_text(seen.tensors)
                       : table_text(seen.tensors, arguments.all, arguments.stats));
  print(formatted("\n  {} in {}, {}, {}\n", bytes_text(static_cast<double>(seen.bytes)),
                  counted(seen.files, "file"), grouped(seen.stored_tensors, "tensor"),
                  seen.dialect ? formatted("{} ({})", counted(seen.weights, "quantized weight"),
                                           name_of(*seen.dialect))
                               : std::string("not quantized")));
  return kGood;
}

}  // namespace

Command add_inspect(CLI::App& program, Globals& globals) {
  CLI::App* app =
      add_subcommand(program, globals, "inspect", "Show what is in a checkpoint", kExamples);
  auto arguments = std::make_shared<Arguments>();
  app->add_option("MODEL", arguments->input, "A folder, a .safetensors or a .gguf file")
      ->required()
      ->type_name("");
  app->add_flag("--all", arguments->all, "A line for every tensor");
  app->add_flag("--stats", arguments->stats, "Read everything: least, largest, mean, deviation");
  app->add_flag("--tree", arguments->tree, "As a tree of modules, with sizes");
  return {app, [arguments, &globals] { return run_inspect(*arguments, globals); }};
}

}  // namespace octavo::cli
