// octavo inspect: what is in a checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "cli/checkpoint_text.h"
#include "cli/command.h"
#include "cli/inspect_tree.h"
#include "cli/number_text.h"
#include "cli/tensor_statistics.h"
#include "cli/terminal.h"
#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/checkpoint/module_role.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo inspect model/                      tensors of the same kind in one line
  octavo inspect model/ --all --stats        every tensor, with the statistics of its values
  octavo inspect model.safetensors --tree    as a tree of modules
  octavo inspect out/ --json                 for a program to read

Of a quantized checkpoint codes and scales are shown as one weight; statistics are those of the
values they stand for.)";

struct Arguments {
  std::string input;
  bool all = false, stats = false, tree = false;
};

void fill_statistics(const CheckpointReader& checkpoint, const Recognized& recognized,
                     std::vector<InspectedTensor>& tensors) {
  parallel_for(static_cast<int>(std::min<std::size_t>(tensors.size(), 64)), 0, [&](int part) {
    const std::size_t parts = std::min<std::size_t>(tensors.size(), 64);
    for (auto i = static_cast<std::size_t>(part); i < tensors.size(); i += parts) {
      InspectedTensor& tensor = tensors[i];
      if (tensor.found != nullptr)
        tensor.statistics = statistics_of(checkpoint, recognized.dialect, *tensor.found);
      else
        tensor.statistics = statistics_of(checkpoint, checkpoint.at(tensor.name));
    }
  });
}

std::vector<InspectedTensor> inspected(const CheckpointReader& checkpoint,
                                       const Recognized& recognized) {
  std::vector<InspectedTensor> out;
  std::set<std::string_view> parts;  // of quantized weights
  for (const FoundWeight& found : recognized.weights) {
    InspectedTensor tensor{.name = found.weight.name, .shape = {}, .type = {}};
    for (int i = 0; i < found.weight.shape.rank(); ++i)
      tensor.shape.push_back(found.weight.shape[i]);
    tensor.type = describe(found.weight.scaling);
    tensor.found = &found;
    for (const SpelledTensor& part : found.tensors) {
      parts.insert(part.plan.name);
      if (const StoredTensor* stored = checkpoint.find(part.plan.name); stored != nullptr)
        tensor.bytes += stored->nbytes();
    }
    out.push_back(std::move(tensor));
  }
  for (const StoredTensor& stored : checkpoint.tensors()) {
    if (parts.contains(stored.name())) continue;
    InspectedTensor tensor{.name = stored.name(), .shape = {}, .type = {}};
    tensor.shape.assign(stored.entry->shape.begin(), stored.entry->shape.end());
    tensor.type = safetensors::stored_name(stored.entry->type);
    tensor.bytes = stored.nbytes();
    out.push_back(std::move(tensor));
  }
  std::stable_sort(out.begin(), out.end(), [](const InspectedTensor& a, const InspectedTensor& b) {
    return natural_less(a.name, b.name);
  });
  return out;
}

std::string statistics_text(const std::optional<Statistics>& statistics) {
  if (!statistics) return "";
  const Statistics& s = *statistics;
  std::string out = fmt::format("  {:>10.4g} {:>10.4g} {:>10.4g} {:>10.4g}", s.least, s.most,
                                s.mean(), s.deviation());
  if (s.zero > 0) out += fmt::format("  {} zero", grouped(s.zero));
  if (s.nan > 0) out += fmt::format("  {} NaN", grouped(s.nan));
  if (s.inf > 0) out += fmt::format("  {} Inf", grouped(s.inf));
  return out;
}

std::string table_text(std::vector<InspectedTensor> tensors, bool all, bool stats) {
  const Style style(stdout);
  std::string out;
  if (all || stats) {
    out = style.bold(fmt::format(
              "{:<48} {:>16} {:>10}  {:<10}{}", "tensor", "shape", "size", "type",
              stats ? fmt::format("  {:>10} {:>10} {:>10} {:>10}", "min", "max", "mean", "std")
                    : "")) +
          "\n";
    for (const InspectedTensor& t : tensors)
      out += fmt::format("{:<48} {:>16} {:>10}  {:<10}{}\n", short_name(t.name, 48), t.shape_text(),
                         bytes_text(static_cast<double>(t.bytes)), t.short_type(),
                         stats ? statistics_text(t.statistics) : "");
    return out;
  }
  struct Line {
    InspectedTensor first;
    std::int64_t count = 0;
  };
  std::vector<Line> lines;
  std::map<std::string, std::size_t> known;
  for (InspectedTensor& tensor : tensors) {
    const std::string name = without_numbers(tensor.name);
    const auto [at, is_new] =
        known.try_emplace(text(name, '\0', tensor.shape_text(), '\0', tensor.type), lines.size());
    if (is_new) {
      lines.push_back({tensor, 1});
      lines.back().first.name = name;
    } else {
      ++lines[at->second].count;
      lines[at->second].first.bytes += tensor.bytes;
    }
  }
  out = style.bold(fmt::format("{:>5}  {:<48} {:>16} {:>10}  {}", "count", "tensor", "shape",
                               "size", "type")) +
        "\n";
  for (const Line& line : lines)
    out += fmt::format("{:>5}  {:<48} {:>16} {:>10}  {}\n", line.count,
                       short_name(line.first.name, 48), line.first.shape_text(),
                       bytes_text(static_cast<double>(line.first.bytes)), line.first.type);
  return out;
}

Json json_of(const CheckpointReader& checkpoint, const Recognized& recognized,
             const std::vector<InspectedTensor>& tensors) {
  Json list = Json::array();
  for (const InspectedTensor& tensor : tensors) {
    Json shape = Json::array();
    for (const std::int64_t extent : tensor.shape) shape.push(extent);
    Json one = Json::object({{"name", tensor.name},
                             {"shape", std::move(shape)},
                             {"type", tensor.type},
                             {"bytes", static_cast<std::int64_t>(tensor.bytes)},
                             {"quantized", tensor.found != nullptr}});
    if (tensor.found != nullptr) {
      Json parts = Json::array();
      for (const SpelledTensor& part : tensor.found->tensors) parts.push(part.plan.name);
      one.set("tensors", std::move(parts));
    }
    if (tensor.statistics) {
      const Statistics& s = *tensor.statistics;
      one.set("statistics", Json::object({{"min", s.least},
                                          {"max", s.most},
                                          {"mean", s.mean()},
                                          {"std", s.deviation()},
                                          {"zero", s.zero},
                                          {"nan", s.nan},
                                          {"inf", s.inf}}));
    }
    list.push(std::move(one));
  }
  return Json::object(
      {{"path", checkpoint.path()},
       {"files", static_cast<std::int64_t>(checkpoint.files().size())},
       {"bytes", static_cast<std::int64_t>(checkpoint.nbytes())},
       {"quantized", recognized.quantized},
       {"dialect", recognized.quantized ? Json(name_of(recognized.dialect)) : Json()},
       {"tensors", std::move(list)}});
}

int run_inspect(const Arguments& arguments, const Globals& globals) {
  const CheckpointReader checkpoint(arguments.input);
  Recognized recognized;
  try {
    recognized = recognize(checkpoint);
  } catch (const Error& error) {
    // To look into a checkpoint that is wrong is what one inspects for.
    say(text("octavo: [inspect] note: ", reason_of(error), "; shown as it is stored"));
  }
  std::vector<InspectedTensor> tensors = inspected(checkpoint, recognized);
  if (arguments.stats) fill_statistics(checkpoint, recognized, tensors);
  if (globals.json) {
    print(json_of(checkpoint, recognized, tensors).dump() + "\n");
    return kGood;
  }
  print(arguments.tree ? tree_text(tensors) : table_text(tensors, arguments.all, arguments.stats));
  const std::size_t files = checkpoint.files().size();
  print(fmt::format(
      "\n  {} in {} file{}, {} tensors, {}\n", bytes_text(static_cast<double>(checkpoint.nbytes())),
      files, files == 1 ? "" : "s", grouped(static_cast<std::int64_t>(checkpoint.tensors().size())),
      recognized.quantized ? fmt::format("{} quantized weights ({})", recognized.weights.size(),
                                         name_of(recognized.dialect))
                           : std::string("not quantized")));
  return kGood;
}

}  // namespace

Command add_inspect(CLI::App& program, Globals& globals) {
  CLI::App* app =
      add_subcommand(program, globals, "inspect", "Show what is in a checkpoint", kExamples);
  auto arguments = std::make_shared<Arguments>();
  app->add_option("MODEL", arguments->input, "A folder or a .safetensors file")
      ->required()
      ->type_name("");
  app->add_flag("--all", arguments->all, "A line for every tensor");
  app->add_flag("--stats", arguments->stats, "Read everything: least, largest, mean, deviation");
  app->add_flag("--tree", arguments->tree, "As a tree of modules, with sizes");
  return {app, [arguments, &globals] { return run_inspect(*arguments, globals); }};
}

}  // namespace octavo::cli
