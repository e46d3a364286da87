#include "cli/checkpoint/quantize_checkpoint_run.h"

#include <filesystem>
#include <optional>

#include "cli/checkpoint/checkpoint_text.h"
#include "cli/checkpoint/checkpoint_watch.h"
#include "cli/checkpoint/compare_recipes_run.h"
#include "cli/checkpoint/gate_argument.h"
#include "cli/checkpoint/mix_run.h"
#include "cli/checkpoint/verdict.h"
#include "cli/terminal/terminal.h"
#include "cli/text/formatted.h"
#include "cli/text/option_words.h"
#include "cli/text/output_name.h"
#include "cli/text/size_argument.h"
#include "cli/text/suggest.h"
#include "cli/usage.h"
#include "octavo/base/error.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/dialect/open_values.h"
#include "octavo/model/gptq/gptq_checkpoint.h"
#include "octavo/pipeline/plan/file/plan_file.h"
#include "octavo/pipeline/quantize_checkpoint.h"

namespace octavo::cli {
namespace {

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw UsageError(text("[quantize] ", parts...));
}

// Reports the library's errors about options as usage errors. Name patterns are checked where the
// input can be opened.
void check_usage(const std::string& input, const QuantizePlanOptions& options,
                 const std::string& deleted_shards) {
  std::optional<CheckpointReader> source;
  if (!options.include.empty())
    source.emplace(open_values(input, OtherFiles::unused, deleted_shards));
  try {
    source ? check_plan_options(options, *source) : check_plan_options(options);
  } catch (const Error& error) {
    refuse(with_flags(reason_of(error)));
  }
}

// Adds what `octavo verify` says of the output, and returns whether it is good: for the loaders
// that the target is for. What was just written is not read again as a whole, unless it is known
// that some of it is not finite.
bool add_verdict(const std::string& output, Dialect target, bool finite, JsonMembers& json,
                 std::string& text) {
  VerifyOptions options{.every_byte = !finite};
  if (target == Dialect::comfyui) options.loaders = {Loader::comfyui};
  if (target == Dialect::octavo) options.loaders = {Loader::octavo};
  const Verification seen = verify_all(CheckpointReader(output), options);
  const Verdict verdict = verdict_of(seen.loaders, seen.findings);
  std::vector<Finding> warnings = seen.findings;
  std::erase_if(warnings, [](const Finding& one) { return one.severity == Severity::error; });
  text += findings_text(warnings) + verdict_text(verdict, VerdictDetail::reasons) +
          scope_text(seen.scope, options);
  json.emplace_back("servers", json_of(verdict));
  json.emplace_back("verified", json_of(seen));
  return seen.good();
}

// Checks everything that a run would be refused for; options that a dry run does not use are noted.
int dry_run(const QuantizeArguments& common, const CheckpointArguments& arguments,
            const QuantizePlanOptions& options, const std::optional<GptqCalibration>& gptq,
            const Globals& globals) {
  std::string unused;
  int count = 0;
  const auto note = [&](bool given, const char* name) {
    if (given) unused += text(count++ > 0 ? ", " : "", name);
  };
  note(!common.output.empty() && !gptq, "-o");
  note(!arguments.report.empty(), "--report");
  note(!common.gates.empty(), "--fail-if");
  note(arguments.resume && !gptq, "--resume");
  note(arguments.delete_source, "--delete-source-shards");
  note(common.threads.has_value(), "--threads");
  note(!arguments.max_memory.empty() && !gptq, "--max-memory");
  if (!unused.empty())
    say(text("octavo: [quantize] note: --dry-run reads headers and writes nothing, so that ",
             unused, count == 1 ? " does nothing here" : " do nothing here"));
  if (gptq)
    say(text("octavo: [quantize] ", check_gptq_checkpoint(common.input, common.output,
                                                          {.plan = options,
                                                           .resume = arguments.resume,
                                                           .follow_links = arguments.follow_links},
                                                          *gptq)));
  const CheckpointReader source = open_values(common.input, copied_files(arguments.follow_links));
  const QuantizePlan plan = plan_quantize(source, options);
  if (globals.json)
    write_plan_file(source, plan, {.follow_links = arguments.follow_links},
                    [](std::string_view piece) { print(std::string(piece)); });
  else
    print(plan_text(source, plan));
  return kGood;
}

// A report inside the output folder can be opened only after the work creates the folder.
bool is_directly_in(const std::string& file, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto plain = [&](const fs::path& path) {
    const fs::path whole = fs::weakly_canonical(fs::absolute(path, error), error);
    return whole.has_filename() ? whole : whole.parent_path();
  };
  return plain(fs::absolute(file, error).parent_path()) == plain(folder) && !error;
}

}  // namespace

bool is_checkpoint(const std::string& input) {
  std::error_code ignored;
  return input.ends_with(".safetensors") || input.ends_with(".gguf") ||
         std::filesystem::is_directory(input, ignored);
}

int run_quantize_checkpoint(const QuantizeArguments& common, const CheckpointArguments& arguments,
                            const Globals& globals) {
  QuantizeCheckpointOptions options{.plan = plan_options(common, arguments),
                                    .threads = common.threads.value_or(0),
                                    .resume = arguments.resume,
                                    .follow_links = arguments.follow_links,
                                    .delete_source = arguments.delete_source};
  options.shared = shared_run("quantize", arguments.shared);
  if (options.shared) options.plan = read_plan_file(options.shared->plan).options;
  const std::vector<Gate> gates = gate_arguments("quantize", common.gates);
  if (!arguments.max_memory.empty())
    options.max_memory = memory_argument("[quantize] --max-memory:", arguments.max_memory);
  QuantizePlanOptions checked = options.plan;
  // Options that do not fit one recipe of several are that recipe's result.
  if (!arguments.compare.empty())
    checked = {
        .include = checked.include, .exclude = checked.exclude, .recipe_for = checked.recipe_for};
  if (!options.shared) check_usage(common.input, checked, deleted_shards_of(common.output));
  if (arguments.delete_source && !common.gates.empty())
    refuse(
        "got --delete-source-shards and --fail-if, whose limits are judged when the source is "
        "gone; "
        "leave one out: a --dry-run or --compare says beforehand what is lost");
  if (arguments.delete_source && !arguments.compare.empty())
    refuse("got --delete-source-shards and --compare, which writes no model; leave one out");
  if (!arguments.report.empty()) check_ending("quantize", "--report", arguments.report, ".html");
  std::optional<GptqCalibration> gptq = gptq_calibration(arguments.gptq);
  if (gptq && (!arguments.compare.empty() || options.shared))
    refuse("got --method gptq and ", options.shared ? "--plan" : "--compare",
           ", which rounds to nearest; leave one out");
  if (!arguments.compare.empty() && (!arguments.mix.budget.empty() || !arguments.mix.fit.empty()))
    refuse("got --compare and a budget; --dry-run prints what a budget gives; leave one out");
  if (gptq && !arguments.max_memory.empty()) gptq->max_memory = options.max_memory;
  if (gptq)
    gptq->on_begin = [](const std::string& needs) { say(text("octavo: [quantize] ", needs)); };
  if (!arguments.compare.empty())
    return run_compare_recipes(common, arguments, std::move(options), globals);
  const std::optional<MixBudget> budget = mix_budget("quantize", arguments.mix);
  if (budget && common.recipe)
    refuse("got --recipe and ", arguments.mix.fit.empty() ? "--budget" : "--fit",
           ", by which recipes are chosen; leave one of them out, or name --candidates");
  std::shared_ptr<const MixResult> mix;
  const auto choose = [&] {
    if (!budget) return;
    MixChoice choice = run_mix("quantize", common.input, *budget, options);
    options.plan = std::move(choice.plan);
    mix = std::move(choice.result);
  };
  if (arguments.dry_run) {
    choose();
    if (mix && !globals.json) print(mix_text(*mix) + "\n");
    return dry_run(common, arguments, options.plan, gptq, globals);
  }
  if (common.output.empty()) {
    // What is wrong with the input comes first.
    if (!options.shared) (void)CheckpointReader(common.input);
    refuse("got no -o; say where the quantized checkpoint goes, or --dry-run for the plan alone");
  }
  output_name("quantize", common.output);
  if (!arguments.report.empty() && !is_directly_in(arguments.report, common.output))
    const WholeFile could_be_written("quantize", output_name("quantize", arguments.report));
  choose();
  CheckpointReport report;
  {
    CheckpointWatch watch("quantize");
    options.on_progress = watch.on_progress();
    try {
      report = gptq ? gptq_checkpoint(common.input, common.output, options, *gptq)
                    : quantize_checkpoint(common.input, common.output, options);
    } catch (const Error&) {
      if (!CheckpointWatch::interrupted()) throw;
    }
  }
  report.mix = mix;
  if (CheckpointWatch::interrupted() && report.tensors.empty() && !report.finished_by_another) {
    say(options.shared
            ? "octavo: [quantize] stopped; the same command goes on from here"
            : "octavo: [quantize] stopped; the same command with --resume goes on from here");
    CheckpointWatch::die();
  }
  if (options.shared) {
    // What is said of the whole, and its limits, is for the process that has it all.
    if (report.finished_by_another && globals.json) print(json_of(report) + "\n");
    finish_stdout();
    say(shared_text(*options.shared, common.output, report.files_written, report.files_taken_over,
                    !report.finished_by_another, report.was_complete, report.written_again));
    // The one that finished it wrote a report and judged limits; a complete folder is judged again.
    if (report.was_complete && !arguments.report.empty())
      say("octavo: [quantize] note: --report is written by the process that finishes the folder; "
          "octavo compare --report measures it again");
    if (report.finished_by_another)
      return report.was_complete && misses_gates("quantize", report, gates) ? kGateMissed : kGood;
  }
  // A report needs metrics of each tensor, which only the run that made the folder had.
  if (report.was_complete && !arguments.report.empty())
    refuse("'", cli::shown(common.output),
           "' is complete, and --report is about a run; octavo compare --report measures it again, "
           "or quantize into a new folder");
  if (!arguments.report.empty()) write_whole_file("quantize", arguments.report, html_of(report));
  std::string summary = (mix ? mix_text(*mix) + "\n" : std::string()) + summary_text(report);
  const bool missed = misses_gates("quantize", report, gates);
  // verify needs as much memory as the report, which is freed before.
  if (globals.json) begin_json(report, [](std::string_view text) { print(text); });
  report.tensors = std::vector<TensorReport>();
  JsonMembers more;
  // What a target declares in config.json no loader finds beside a file.
  const bool for_servers =
      options.plan.target != Dialect::comfyui && options.plan.target != Dialect::octavo;
  std::string unverified;
  bool loads = true;
  try {
    if (options.plan.target != Dialect::gguf &&
        (!for_servers || !common.output.ends_with(".safetensors")))
      loads = add_verdict(common.output, options.plan.target, report.copied_non_finite == 0, more,
                          summary);
  } catch (const std::exception& error) {
    // The JSON output has begun, so it is completed in any case.
    unverified = error.what();
    more.emplace_back("servers", Json::object({{"error", unverified}}).dump());
  }
  const bool shown = globals.json || !report.was_complete || !loads;
  if (globals.json) {
    end_json(more, [](std::string_view text) { print(text); });
    print("\n");
  } else if (shown) {
    print(summary);
  }
  finish_stdout();  // before messages about it on stderr
  say_written("quantize", common.output, report.was_complete, report.written_again);
  if (!arguments.report.empty()) say(formatted("wrote {}", octavo::shown(arguments.report, 400)));
  if (!unverified.empty()) {
    say(text("octavo: ", unverified, "; so it is unknown whether servers load it: octavo verify ",
             cli::shown(common.output)));
    return kFailed;
  }
  if (!loads)
    say(text("octavo: [quantize] '", cli::shown(common.output),
             "' does not load, or as something else, as said above: octavo verify ",
             cli::shown(common.output)));
  if (missed) return kGateMissed;
  return loads ? kGood : kFailed;
}

}  // namespace octavo::cli
