#include "cli/quantize_checkpoint_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "cli/checkpoint_text.h"
#include "cli/checkpoint_watch.h"
#include "cli/finished.h"
#include "cli/names.h"
#include "cli/output_name.h"
#include "cli/size_argument.h"
#include "cli/terminal.h"
#include "cli/verdict.h"
#include "octavo/base/error.h"
#include "octavo/base/pattern.h"
#include "octavo/base/whole_file.h"
#include "octavo/pipeline/quantize_checkpoint.h"

namespace octavo::cli {
namespace {

constexpr std::array<const char*, 11> kOnlyForArrays{
    "--tile", "--axis", "--margin",          "--rounding", "--overflow", "--non-finite",
    "--nan",  "--seed", "--stochastic-bits", "--from",     "--plot"};
constexpr std::array<const char*, 12> kOnlyForCheckpoints{
    "--target",         "--include",   "--exclude",    "--recipe-for", "--dry-run", "--no-share",
    "--scale-rounding", "--nonfinite", "--shard-size", "--max-memory", "--resume",  "--report"};

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw UsageError(text("[quantize] ", parts...));
}

void check_expression(const char* option, const std::string& typed) {
  try {
    const Pattern compiles(typed);
  } catch (const Error& error) {
    refuse(option, ": ", reason_of(error));
  }
}

void check_recipe(const char* option, const std::string& typed) {
  const std::string base = typed.substr(0, typed.find(':'));
  (void)named_argument(text("[quantize] ", option, ":"), base, preset_names(),
                       [&](const std::string&) { return preset(typed); });
}

std::pair<std::string, std::string> recipe_for(const std::string& typed) {
  const std::size_t at = typed.rfind('=');
  if (at == std::string::npos || at == 0)
    refuse("--recipe-for: got '", cli::shown(typed),
           "', wanted REGEX=PRESET, such as 'down_proj=mxfp8'");
  std::pair<std::string, std::string> out{typed.substr(0, at), typed.substr(at + 1)};
  check_expression("--recipe-for", out.first);
  if (out.second != "none") check_recipe("--recipe-for", out.second);
  return out;
}

QuantizePlanOptions plan_options(const QuantizeArguments& common,
                                 const CheckpointArguments& arguments) {
  QuantizePlanOptions out;
  if (common.recipe) out.recipe = *common.recipe;
  check_recipe("--recipe", out.recipe);
  out.target =
      named_argument("[quantize] --target:", arguments.target, dialect_names(), parse_dialect);
  if (common.format) {
    (void)format_argument("[quantize] --format:", *common.format);
    out.format = *common.format;
  }
  if (common.rule) {
    (void)named_argument("[quantize] --scale-rule:", *common.rule, scale_rule_names(),
                         parse_scale_rule);
    out.scale_rule = *common.rule;
  }
  if (common.arith) {
    (void)named_argument("[quantize] --arith:", *common.arith, arith_names(), parse_arith);
    out.arith = *common.arith;
  }
  if (common.policy) {
    Scaling scratch;
    (void)named_argument(
        "[quantize] --scale-policy:", *common.policy, scale_policy_names(),
        [&](const std::string& name) { return parse_amax_policy(name, scratch), 0; });
    out.scale_policy = *common.policy;
  }
  if (common.scale) {
    (void)named_argument("[quantize] --scale:", *common.scale, scale_format_names(),
                         parse_scale_format);
    out.scale_format = *common.scale;
  }
  for (const std::string& typed : arguments.include) check_expression("--include", typed);
  for (const std::string& typed : arguments.exclude) check_expression("--exclude", typed);
  out.include = arguments.include;
  out.exclude = arguments.exclude;
  for (const std::string& typed : arguments.recipe_for) out.recipe_for.push_back(recipe_for(typed));
  out.share = !arguments.no_share;
  out.bf16_scales = arguments.scale_rounding == "bf16";
  out.clamp_non_finite = arguments.nonfinite == "clamp";
  if (!arguments.shard_size.empty())
    out.shard_bytes = size_argument("[quantize] --shard-size:", arguments.shard_size);
  try {
    check_plan_options(out);
  } catch (const Error& error) {
    refuse(reason_of(error));
  }
  return out;
}

// An expression that includes nothing is a slip of the finger, whatever the model.
void check_includes(const CheckpointReader& source, const std::vector<std::string>& include) {
  for (const std::string& typed : include) {
    const Pattern pattern(typed);
    const auto& tensors = source.tensors();
    if (std::none_of(tensors.begin(), tensors.end(),
                     [&](const StoredTensor& tensor) { return pattern.is_in(tensor.name()); }))
      refuse("--include: '", cli::shown(typed),
             "' is found in no tensor's name; octavo inspect lists them");
  }
}

// What servers make of it. Codes are what was just written, so they are not read again.
void add_verdict(const std::string& output, Json& json, std::string& text) {
  const VerifyOptions options{.codes = false};
  const CheckpointReader written(output);
  const std::vector<Finding> findings = verify(written, options);
  const Verdict verdict = verdict_of(options.loaders, findings);
  text += verdict_text(verdict, true);
  json.set("servers", json_of(verdict));
}

// Everything that a run would be refused for is looked at; what nothing is done with is said.
int dry_run(const QuantizeArguments& common, const CheckpointArguments& arguments,
            const QuantizePlanOptions& options, const Globals& globals) {
  std::string unused;
  const auto note = [&](bool given, const char* name) {
    if (given) unused += text(unused.empty() ? "" : ", ", name);
  };
  note(!common.output.empty(), "-o");
  note(!arguments.report.empty(), "--report");
  note(!common.gates.empty(), "--fail-if");
  note(arguments.resume, "--resume");
  note(common.threads.has_value(), "--threads");
  note(!arguments.max_memory.empty(), "--max-memory");
  if (!unused.empty())
    say(text("octavo: [quantize] note: --dry-run reads headers and writes nothing, so that ",
             unused, " change nothing here"));
  const CheckpointReader source(common.input);
  const QuantizePlan plan = plan_quantize(source, options);
  print(globals.json ? json_of(source, plan).dump() + "\n" : plan_text(source, plan));
  return kGood;
}

// A page in the folder that is only made by the work can be tried only behind it.
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

std::vector<std::string> scale_rounding_names() { return {"bf16", "none"}; }
std::vector<std::string> nonfinite_names() { return {"error", "clamp"}; }

// What is not there is taken for what its name says, so that the message fits.
bool is_checkpoint(const std::string& input) {
  std::error_code ignored;
  if (input.ends_with(".safetensors") || std::filesystem::is_directory(input, ignored)) return true;
  return input != "-" && !input.ends_with(".npy") && !std::filesystem::exists(input, ignored);
}

void check_kind_of_options(const CLI::App& app, bool checkpoint) {
  const auto given = [&](const char* name) { return app.get_option(name)->count() > 0; };
  if (checkpoint) {
    for (const char* name : kOnlyForArrays)
      if (given(name))
        refuse("got ", name, ", which is for arrays, and the input is a checkpoint; leave it out");
    return;
  }
  for (const char* name : kOnlyForCheckpoints)
    if (given(name))
      refuse("got ", name,
             ", which is for checkpoints: a folder, or a file that ends in .safetensors");
}

void add_checkpoint_options(CLI::App& app, CheckpointArguments& arguments) {
  const auto list = [&](const char* name, std::vector<std::string>& into, const char* help,
                        const char* type) {
    app.add_option(name, into, help)
        ->type_name(type)
        ->expected(1)
        ->allow_extra_args(false)
        ->take_all()
        ->group("Checkpoints");
  };
  app.add_option(
         "--target", arguments.target,
         "Whose spelling to write: " + listed(dialect_names()) + " (default compressed-tensors)")
      ->type_name("NAME")
      ->group("Checkpoints");
  list("--include", arguments.include, "Quantize what this finds in its name, and nothing else",
       "REGEX");
  list("--exclude", arguments.exclude, "Leave alone what this finds in its name", "REGEX");
  list("--recipe-for", arguments.recipe_for,
       "Another preset (or none) for names that REGEX is found in; the first that fits decides",
       "REGEX=PRESET");
  app.add_flag("--dry-run", arguments.dry_run, "Print the plan and the sizes; write nothing")
      ->group("Checkpoints");
  app.add_flag("--no-share", arguments.no_share,
               "A scale of its own for each matrix that servers fuse (q/k/v, gate/up)")
      ->group("Checkpoints");
  app.add_option("--scale-rounding", arguments.scale_rounding,
                 "bf16 (default: f32 scales that bf16 can hold, the same in every loader) or none")
      ->type_name("RULE")
      ->group("Checkpoints")
      ->check(CLI::IsMember(scale_rounding_names()).description(""));
  app.add_option("--nonfinite", arguments.nonfinite,
                 "NaN and Inf in weights: error (default), or clamp")
      ->type_name("RULE")
      ->group("Checkpoints")
      ->check(CLI::IsMember(nonfinite_names()).description(""));
  app.add_option("--report", arguments.report, "Also write a page (HTML) about every tensor")
      ->type_name("FILE")
      ->group("Checkpoints");
  app.add_option("--max-memory", arguments.max_memory,
                 "For what is read and written, such as 64M (default 256M)")
      ->type_name("SIZE")
      ->group("Checkpoints");
  app.add_option("--shard-size", arguments.shard_size,
                 "Files of at most this size, such as 5G (default: as the source has them)")
      ->type_name("SIZE")
      ->group("Checkpoints");
  app.add_flag("--resume", arguments.resume, "Go on where an earlier call stopped")
      ->group("Checkpoints");
}

int run_quantize_checkpoint(const QuantizeArguments& common, const CheckpointArguments& arguments,
                            const Globals& globals) {
  QuantizeCheckpointOptions options{.plan = plan_options(common, arguments),
                                    .threads = common.threads.value_or(0),
                                    .resume = arguments.resume};
  std::vector<Gate> gates;
  for (const std::string& typed : common.gates) gates.push_back(parse_gate(typed));
  if (!arguments.max_memory.empty())
    options.max_memory = memory_argument("[quantize] --max-memory:", arguments.max_memory);
  if (!arguments.include.empty()) check_includes(CheckpointReader(common.input), arguments.include);
  if (!arguments.report.empty()) check_ending("quantize", "--report", arguments.report, ".html");
  if (arguments.dry_run) return dry_run(common, arguments, options.plan, globals);
  if (common.output.empty())
    refuse("got no -o; say where the quantized checkpoint goes, or --dry-run for the plan alone");
  output_name("quantize", common.output);
  if (!arguments.report.empty() && !is_directly_in(arguments.report, common.output))
    const WholeFile could_be_written("quantize", output_name("quantize", arguments.report));
  if (arguments.resume &&
      is_finished(common.output, {{"recipe", options.plan.recipe},
                                  {"target", std::string(name_of(options.plan.target))}})) {
    // What they ask for went with the run that made the folder.
    if (!gates.empty() || !arguments.report.empty() || globals.json)
      refuse("'", cli::shown(common.output),
             "' is complete, and --fail-if, --report and --json are about a run; octavo compare "
             "measures it again (--fail-if, --report, --json), or quantize into a new folder");
    say_finished("quantize", common.output);
    return kGood;
  }
  CheckpointReport report;
  {
    CheckpointWatch watch("quantize");
    options.on_progress = watch.on_progress();
    try {
      report = quantize_checkpoint(common.input, common.output, options);
    } catch (const Error&) {
      if (!CheckpointWatch::interrupted()) throw;
    }
  }
  if (CheckpointWatch::interrupted() && report.tensors.empty()) {
    say("octavo: [quantize] stopped; the same command with --resume goes on from here");
    CheckpointWatch::die();
  }
  if (!arguments.report.empty()) write_whole_file("quantize", arguments.report, html_of(report));
  Json more;
  std::string summary = summary_text(report);
  const bool for_servers =
      options.plan.target != Dialect::comfyui && options.plan.target != Dialect::octavo;
  if (for_servers && !common.output.ends_with(".safetensors"))
    add_verdict(common.output, more, summary);
  if (globals.json) {
    write_json(report, more, [](std::string_view text) { print(text); });
    print("\n");
  } else {
    print(summary);
  }
  finish_stdout();  // before what is said about it
  say(fmt::format("wrote {}", octavo::shown(common.output, 400)));
  if (!arguments.report.empty()) say(fmt::format("wrote {}", octavo::shown(arguments.report, 400)));
  return misses_gates("quantize", report, gates) ? kGateMissed : kGood;
}

}  // namespace octavo::cli
