// octavo plan: what quantize or convert would do with a checkpoint, as a file that several
// processes divide; and how evenly they would.

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/checkpoint/checkpoint_text.h"
#include "cli/checkpoint/mix_run.h"
#include "cli/checkpoint/quantize_checkpoint_options.h"
#include "cli/command.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/input_name.h"
#include "cli/text/number_text.h"
#include "cli/text/option_words.h"
#include "cli/text/output_name.h"
#include "cli/text/suggest.h"
#include "octavo/base/error.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/base/json/json.h"
#include "octavo/base/launcher.h"
#include "octavo/checkpoint/dialect/open_values.h"
#include "octavo/pipeline/convert_checkpoint.h"
#include "octavo/pipeline/plan/file/plan_file.h"
#include "octavo/report/choose_format.h"

namespace octavo::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  octavo plan model/ -o plan.json --recipe nvfp4          what becomes of every tensor
  octavo plan model/ --recipe nvfp4 --simulate 1,8,64     how evenly 1, 8 and 64 processes share it
  octavo plan model/ -o plan.json --budget 4.5bpw         recipes chosen by their error
  octavo plan plan.json --simulate 16                     the same of a plan that is there
  octavo plan fp8/ -o plan.json --convert --target modelopt
  srun --cpus-per-task=32 octavo quantize --plan plan.json -o out/   the work, by every process of
                                                          a Slurm step with that many cores each

Headers alone are read, but for --budget and --fit, which measure every weight. Every process gets
the same plan and the same output folder; see docs/guide/clusters.md.)";

struct Arguments {
  QuantizeArguments common;
  CheckpointArguments checkpoint;
  std::vector<std::string> simulate;
  bool convert = false;
};

std::vector<int> worlds(const std::vector<std::string>& typed) {
  std::vector<int> out;
  for (const std::string& one : typed) {
    int world = 0;
    const char* const end = one.data() + one.size();
    const auto [stop, error] = std::from_chars(one.data(), end, world);
    if (error != std::errc{} || stop != end || world < 1 || world > kMaxWorld)
      throw UsageError(text("[plan] --simulate: got '", cli::shown(one),
                            "'; expected numbers of processes from 1 to ", kMaxWorld,
                            ", as in 1,8,64"));
    out.push_back(world);
  }
  return out;
}

struct Planned {
  std::optional<CheckpointReader> source{};
  QuantizePlan plan{};
  std::vector<ShardWork> work{};
  std::shared_ptr<const MixResult> mix{};  // of a budget
};

// Options that would change nothing are refused: another plan was meant.
void refuse_unused(const CLI::App& app, const Arguments& arguments) {
  std::vector<std::string> unused;
  std::string why;
  if (arguments.common.input.ends_with(".json")) {
    unused = plan_option_names();
    unused.emplace_back("--convert");
    why = "the plan that is simulated says it; leave it out, or give the model";
  } else if (arguments.convert) {
    unused = plan_option_names();
    std::erase(unused, "--target");
    std::erase(unused, "--follow-links");
    why = "--convert keeps codes and files as they are; leave one of them out";
  }
  for (const std::string& name : unused)
    if (app.get_option(name)->count() > 0)
      throw UsageError(text("[plan] got ", name, ", and ", why));
}

Planned planned(const Arguments& arguments) {
  Planned out;
  const std::string& input = arguments.common.input;
  check_input("plan", input, "a model: a folder, a .safetensors or a .gguf file; or a plan");
  if (input.ends_with(".json")) {
    if (!arguments.common.output.empty() || arguments.simulate.empty())
      throw UsageError("[plan] got a plan; expected --simulate with it, and no -o");
    out.work = read_plan_file(input).shards;
    return out;
  }
  QuantizePlanOptions options = plan_options(arguments.common, arguments.checkpoint);
  const std::optional<MixBudget> budget = mix_budget("plan", arguments.checkpoint.mix);
  // A choice by them is in the plan, as recipes; scales by them would be made by each process.
  const bool for_choice = budget && options.scale_policy != "wmse" &&
                          options.input_scales != StaticScaleSource::statistics &&
                          options.kv_scales != StaticScaleSource::statistics;
  if (options.statistics != nullptr && !for_choice)
    throw UsageError(
        "[plan] got --statistics, which processes of a plan do not share; octavo quantize takes "
        "them in one process");
  if (options.target == Dialect::gguf)
    throw UsageError(
        "[plan] target gguf is one file, which processes cannot divide; octavo "
        "quantize writes it");
  if (options.format == kMeasuredFormat)
    throw UsageError(
        "[plan] got --format auto, which is chosen by all values, and every process of a plan "
        "would read them again; octavo quantize takes it in one process, or name the formats "
        "(--format, --recipe-for)");
  const OtherFiles others = copied_files(arguments.checkpoint.follow_links);
  out.source.emplace(arguments.convert ? CheckpointReader(input, others)
                                       : open_values(input, others));
  if (budget) {
    if (!options.recipe.empty())
      throw UsageError(
          "[plan] got --recipe and a budget, by which recipes are chosen; leave one of them out, "
          "or name --candidates");
    MixChoice choice =
        run_mix("plan", input, *budget,
                {.plan = options, .follow_links = arguments.checkpoint.follow_links});
    options = std::move(choice.plan);
    options.statistics = nullptr;
    out.mix = std::move(choice.result);
  }
  if (arguments.convert) {
    ConvertCheckpointResult result;
    out.plan = plan_conversion(*out.source, options.target, result);
    out.plan.notes = result.notes;
  } else {
    try {
      check_plan_options(options, *out.source);
    } catch (const Error& error) {
      throw UsageError(text("[plan] ", with_flags(reason_of(error))));
    }
    out.plan = plan_quantize(*out.source, options);
  }
  out.work = shard_work(*out.source, out.plan);
  return out;
}

void put_plan(const Arguments& arguments, const Planned& planned, const PutPiece& put) {
  write_plan_file(*planned.source, planned.plan,
                  {.work = arguments.convert ? kPlanOfConvert : kPlanOfQuantize,
                   .follow_links = arguments.checkpoint.follow_links},
                  put);
}

Json simulated_json(const std::vector<ShardWork>& work, const std::vector<int>& of) {
  Json out = Json::array();
  for (const int world : of) {
    const WorldBalance one = balance_of(work, world);
    out.push(Json::object({{"world", world},
                           {"files", work.size()},
                           {"fewest_files", one.fewest_files},
                           {"most_files", one.most_files},
                           {"bytes", one.bytes},
                           {"most_bytes", one.most_bytes},
                           {"balance", one.balance()}}));
  }
  return Json::object({{"simulated", std::move(out)}});
}

std::string simulated_text(const std::vector<ShardWork>& work, const std::vector<int>& of) {
  std::string out = formatted("{} to write, by bytes that are read and written\n",
                              grouped(static_cast<std::int64_t>(work.size()), "file"));
  out += "processes  files of each  bytes of the slowest  slowest/mean  minutes at 1 GB/s each\n";
  for (const int world : of) {
    const WorldBalance one = balance_of(work, world);
    const auto most = static_cast<double>(one.most_bytes);
    out += formatted("{:>9}  {:>13}  {:>20}  {:>12.3f}  {:>22.1f}\n", world,
                     one.fewest_files == one.most_files
                         ? formatted("{}", one.most_files)
                         : formatted("{}-{}", one.fewest_files, one.most_files),
                     bytes_text(most), one.balance(), most / 60e9);
  }
  return out;
}

std::string summary(const Planned& planned) {
  ShardWork all;
  for (const ShardWork& one : planned.work) {
    all.bytes_read += one.bytes_read;
    all.bytes_amax += one.bytes_amax;
    all.bytes_shared += one.bytes_shared;
    all.bytes_written += one.bytes_written;
  }
  const auto shown = [](std::uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  std::string out = formatted("{}: {} to read, {} to write\n",
                              grouped(static_cast<std::int64_t>(planned.work.size()), "file"),
                              shown(all.bytes_read), shown(all.bytes_written));
  if (all.bytes_amax > 0)
    out +=
        formatted("{} of them are read twice, for scales of whole weights", shown(all.bytes_amax)) +
        (all.bytes_shared > 0
             ? formatted(" ({} for scales that files share)\n", shown(all.bytes_shared))
             : "\n");
  return out + notes_text(planned.plan.notes);
}

// A model's folder has .json files of its own, and what else lies there is copied with it. Beside a
// model that is one file a plan may lie, but not under a name that its loaders read. Nowhere is a
// file replaced that is no plan.
void check_replaces_nothing(const std::string& model, const std::string& output) {
  namespace fs = std::filesystem;
  const auto refuse = [&](const char* what) {
    throw UsageError(
        text("[plan] -o: '", octavo::shown(output, 200), "' ", what, "; give another name"));
  };
  std::error_code error;
  const bool is_folder = fs::is_directory(model, error);
  fs::path beside = fs::absolute(model, error);
  if (!is_folder) beside = beside.parent_path();
  const fs::path file = fs::absolute(output, error);
  for (fs::path there = file.parent_path(); is_folder; there = there.parent_path()) {
    if (fs::equivalent(beside, there, error))
      refuse("is in the model's folder, whose files a plan must not replace");
    if (there == there.parent_path()) break;
  }
  const std::string name = file.filename().string();
  const auto is_any_of = [&](const auto&... names) { return ((name == names) || ...); };
  if (fs::equivalent(beside, file.parent_path(), error) &&
      (name.ends_with(".index.json") ||
       is_any_of("config.json", "hf_quant_config.json", "generation_config.json", "tokenizer.json",
                 "tokenizer_config.json")))
    refuse("has the name of a file that a model has, beside this one");
  if (fs::exists(file, error) && !is_plan_file(output)) refuse("is there already, and is no plan");
}

int run(const CLI::App& app, const Arguments& arguments, const Globals& globals) {
  refuse_unused(app, arguments);
  const std::vector<int> of = worlds(arguments.simulate);
  const std::string& output = arguments.common.output;
  if (!output.empty()) {
    check_ending("plan", "-o", output_name("plan", output), ".json");
    check_replaces_nothing(arguments.common.input, output);
  }
  const Planned made = planned(arguments);
  if (!output.empty()) {
    WholeFile file("plan", output);
    put_plan(arguments, made,
             [&](std::string_view piece) { file.write(std::as_bytes(std::span(piece))); });
    file.commit();
  }
  if (!of.empty())
    print(globals.json ? simulated_json(made.work, of).dump() + "\n"
                       : simulated_text(made.work, of));
  else if (globals.json)
    put_plan(arguments, made, [](std::string_view piece) { print(piece); });
  else
    print((made.mix ? mix_text(*made.mix) + "\n" : std::string()) +
          (output.empty() && !arguments.convert ? plan_text(*made.source, made.plan)
                                                : summary(made)));
  finish_stdout();
  if (!output.empty()) say(formatted("wrote {}", octavo::shown(output, 400)));
  return kGood;
}

}  // namespace

Command add_plan(CLI::App& program, Globals& globals) {
  CLI::App* app =
      add_subcommand(program, globals, "plan",
                     "Plan the quantizing of a checkpoint, for processes to share", kExamples);
  auto arguments = std::make_shared<Arguments>();
  app->add_option("MODEL", arguments->common.input,
                  "A model: a folder, a .safetensors or a .gguf file; or a plan, to simulate")
      ->required()
      ->type_name("");
  app->add_option("-o,--output", arguments->common.output, "Write the plan: a .json file")
      ->type_name("FILE");
  add_recipe_options(*app, arguments->common);
  add_plan_options(*app, arguments->checkpoint);
  add_non_finite_option(*app, arguments->common.non_finite,
                        "NaN and Inf of weights: error (default), or clamp");
  app->add_flag("--convert", arguments->convert,
                "Of octavo convert: codes as they are, in the dialect of --target");
  app->add_option(
         "--simulate", arguments->simulate,
         "Show how evenly the work divides among these numbers of processes, such as 1,2,8")
      ->type_name("N")
      ->expected(1)
      ->allow_extra_args(false)
      ->delimiter(',')
      ->take_all();
  return {app, [app, arguments, &globals] { return run(*app, *arguments, globals); }};
}

}  // namespace octavo::cli
