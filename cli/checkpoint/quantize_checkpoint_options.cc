#include "cli/checkpoint/quantize_checkpoint_options.h"

#include <array>
#include <functional>
#include <memory>

#include "cli/command.h"
#include "cli/text/names.h"
#include "cli/text/size_argument.h"
#include "octavo/base/error.h"
#include "octavo/model/statistics/input_statistics_file.h"
#include "octavo/pipeline/quantize_checkpoint.h"
#include "octavo/report/choose_format.h"

namespace octavo::cli {
namespace {

constexpr std::array<const char*, 9> kOnlyForArrays{
    "--axis", "--margin", "--rounding",        "--overflow", "--nan",
    "--seed", "--from",   "--stochastic-bits", "--plot"};
// Of what `add` adds to a command, all names: "--recipe".
std::vector<std::string> names_added(const std::function<void(CLI::App&)>& add) {
  CLI::App app;
  app.set_help_flag();
  add(app);
  std::vector<std::string> out;
  for (const CLI::Option* const option : app.get_options())
    for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
  return out;
}

std::vector<std::string> only_for_checkpoints() {
  return names_added([into = std::make_shared<CheckpointArguments>()](CLI::App& app) {
    add_checkpoint_options(app, *into);
    add_shared_options(app, into->shared);
  });
}

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw UsageError(text("[quantize] ", parts...));
}

void check_recipe(const char* option, const std::string& typed, bool may_be_none) {
  if (may_be_none ? typed == "none" : is_mixed_recipe(typed)) return;
  std::vector<std::string> names = preset_names();
  const std::vector<std::string> mixed = mixed_recipe_names();
  if (may_be_none)
    names.emplace_back("none");
  else
    names.insert(names.end(), mixed.begin(), mixed.end());
  const std::string base = typed.substr(0, typed.find(':'));
  try {
    (void)preset(typed);
  } catch (const Error& error) {
    throw UsageError(text("[quantize] ", option, ": ", reason_of(error),
                          may_be_none ? ", or none to keep it unquantized." : ".",
                          did_you_mean(base, names)));
  }
}

std::pair<std::string, std::string> recipe_for(const std::string& typed) {
  const std::size_t at = typed.rfind('=');
  if (at == std::string::npos || at == 0)
    refuse("--recipe-for: got '", cli::shown(typed),
           "'; expected REGEX=PRESET, such as 'down_proj=mxfp8'");
  std::pair<std::string, std::string> out{typed.substr(0, at), typed.substr(at + 1)};
  check_recipe("--recipe-for", out.second, true);
  return out;
}

}  // namespace

std::vector<std::string> plan_option_names() {
  return names_added([common = std::make_shared<QuantizeArguments>(),
                      into = std::make_shared<CheckpointArguments>()](CLI::App& app) {
    add_recipe_options(app, *common);
    add_plan_options(app, *into);
    add_non_finite_option(app, common->non_finite, "");
  });
}

std::vector<std::string> scale_rounding_names() { return {"bf16", "none"}; }
std::vector<std::string> clamp_names() { return {"error", "clamp"}; }
std::vector<std::string> static_scale_names() { return {"none", "statistics", "one"}; }

void add_non_finite_option(CLI::App& app, std::optional<std::string>& into,
                           const std::string& help) {
  app.add_option("--non-finite", into, help)->type_name("RULE");
  // Another spelling, understood and not offered.
  const auto take = [&into](const std::string& typed) {
    if (into) throw CLI::ValidationError("--non-finite", "got it twice; expected it once");
    into = typed;
  };
  app.add_option_function<std::string>("--nonfinite", take)->type_name("RULE")->group("");
}

bool is_clamped(std::string_view op, const std::optional<std::string>& typed) {
  if (!typed) return false;
  return named_argument(
      text('[', op, "] --non-finite:"), *typed, clamp_names(), [](const std::string& name) {
        check(name == "clamp" || name == "error", ErrorCode::invalid_argument, "non_finite",
              "got '", octavo::shown(name), "'; expected error or clamp");
        return name == "clamp";
      });
}

void add_follow_links_flag(CLI::App& app, bool& into) {
  app.add_flag("--follow-links", into,
               "Read and copy what links out of the model's folder lead to");
}

void check_kind_of_options(const CLI::App& app, bool checkpoint) {
  const auto given = [&](const char* name) { return app.get_option(name)->count() > 0; };
  if (checkpoint) {
    for (const char* name : kOnlyForArrays)
      if (given(name))
        refuse("got ", name, ", which is for arrays, and the input is a checkpoint; leave it out");
    return;
  }
  for (const std::string& name : only_for_checkpoints()) {
    if (name == "--report" && given("--sweep")) continue;  // its page
    if (given(name.c_str()))
      refuse("got ", name,
             ", which is for checkpoints: a folder, or a file that ends in .safetensors or .gguf");
  }
}

void group_options_by_input(CLI::App& app) {
  for (const char* name : kOnlyForArrays) app.get_option(name)->group("Arrays only");
  for (const std::string& name : only_for_checkpoints())
    app.get_option(name)->group("Checkpoints only");
}

void add_recipe_options(CLI::App& app, QuantizeArguments& arguments) {
  app.add_option("--recipe", arguments.recipe,
                 "A preset, the name of a way to quantize: " + listed(preset_names()) +
                     "; some take an element format, as in mxfp8:e5m2; of checkpoints also several "
                     "in one: " +
                     listed(mixed_recipe_names()) +
                     " (default for checkpoints: fp8-block, or fp8-channel where blocks do not "
                     "fit)")
      ->type_name("NAME");
  app.add_option("--format", arguments.format,
                 "Element format: e4m3fn, e2m1fn, any ExMy; or auto: e4m3fn or e5m2, for each "
                 "tensor what has less error")
      ->type_name("FORMAT");
  app.add_option("--tile", arguments.tile,
                 "Elements that share a scale: rows x columns, such as 1x32; row, column, tensor; "
                 "or 64, for blocks of that size in the form of the recipe's")
      ->type_name("RxC");
  app.add_option("--scale", arguments.scale,
                 "How scales are stored: " + listed(scale_format_names()))
      ->type_name("TYPE");
  app.add_option("--scale-rule", arguments.rule,
                 "From amax to scale: " + listed(scale_rule_names()))
      ->type_name("RULE");
  app.add_option("--scale-policy", arguments.policy,
                 "What scales are chosen by: max, percentile:P (of magnitudes), mse (least squared "
                 "error), 4over6 (nvfp4: of two), modelopt_sweep (nvfp4: of all, as ModelOpt), "
                 "wmse (weighted by --statistics) (default max)")
      ->type_name("POLICY");
  app.add_option("--arith", arguments.arith,
                 "Whose order of operations, bit for bit: " + listed(arith_names()))
      ->type_name("NAME");
}

void add_plan_options(CLI::App& app, CheckpointArguments& arguments) {
  const auto list = [&](const char* name, std::vector<std::string>& into, const char* help,
                        const char* type) {
    app.add_option(name, into, help)
        ->type_name(type)
        ->expected(1)
        ->allow_extra_args(false)
        ->take_all();
  };
  app.add_option("--target", arguments.target,
                 "Dialect to write: " + listed(dialect_names()) + " (default compressed-tensors)")
      ->type_name("NAME");
  list("--include", arguments.include, "Quantize what this finds in its name, and nothing else",
       "REGEX");
  list("--exclude", arguments.exclude, "Leave alone what this finds in its name", "REGEX");
  list("--recipe-for", arguments.recipe_for,
       "Another preset (or none) for names that REGEX is found in; the first that fits decides",
       "REGEX=PRESET");
  app.add_option("--budget", arguments.mix.budget,
                 "Choose a recipe for each part of the model by its measured error, within this "
                 "many bits per weight, scales included, such as 4.5bpw")
      ->type_name("BITS");
  app.add_option("--fit", arguments.mix.fit,
                 "The same within this size of the output, such as 24GiB")
      ->type_name("SIZE");
  app.add_option("--candidates", arguments.mix.candidates,
                 "With --budget or --fit: recipes to choose from, separated by commas; none keeps "
                 "a weight as it is (default: those of the target)")
      ->type_name("NAMES")
      ->expected(1)
      ->allow_extra_args(false)
      ->delimiter(',')
      ->take_all();
  app.add_flag("--no-share", arguments.no_share,
               "A scale of its own for each matrix that servers fuse (q/k/v, gate/up)");
  app.add_option("--scale-rounding", arguments.scale_rounding,
                 "bf16 (default: f32 scales that bf16 can hold, the same in every loader) or none")
      ->type_name("RULE")
      ->check(CLI::IsMember(scale_rounding_names()).description(""));
  app.add_option("--statistics", arguments.statistics,
                 "What octavo calibrate wrote of this model, or llama.cpp's imatrix: for "
                 "--scale-policy wmse, --input-scales, --kv-scales, and errors by --budget or "
                 "--fit")
      ->type_name("FILE");
  app.add_option("--input-scales", arguments.input_scales,
                 "Static scales of activations, beside the weights: none (default), of statistics, "
                 "or one (1, as ModelOpt ships NVFP4)")
      ->type_name("FROM")
      ->check(CLI::IsMember(static_scale_names()).description(""));
  app.add_option("--kv-scales", arguments.kv_scales,
                 "Scales of a KV cache in FP8, which config.json then declares: none (default), of "
                 "statistics, or one")
      ->type_name("FROM")
      ->check(CLI::IsMember(static_scale_names()).description(""));
  app.add_option("--shard-size", arguments.shard_size,
                 "Files of at most this size, such as 5G (default: as the source has them)")
      ->type_name("SIZE");
  add_follow_links_flag(app, arguments.follow_links);
}

void add_checkpoint_options(CLI::App& app, CheckpointArguments& arguments) {
  add_plan_options(app, arguments);
  app.add_flag("--dry-run", arguments.dry_run, "Print the plan and the sizes; write nothing");
  app.add_option("--report", arguments.report, "Also write a page (HTML) about every tensor")
      ->type_name("FILE");
  app.add_option(
         "--compare", arguments.compare,
         "Show what these recipes, separated by commas, would make of it side by side, with "
         "--report as a page; writes no model")
      ->type_name("NAMES")
      ->expected(1)
      ->allow_extra_args(false)
      ->delimiter(',')
      ->take_all();
  app.add_option(
         "--max-memory", arguments.max_memory,
         "For what is read and written, such as 64M (default 256M); of gptq for a layer, its "
         "Hessians and hidden states, too (default 4GiB)")
      ->type_name("SIZE");
  app.add_flag("--resume", arguments.resume, "Go on where an earlier call stopped");
  app.add_flag("--delete-source-shards", arguments.delete_source,
               "Delete each file of MODEL when what is made of it is finished and was read back");
  add_gptq_options(app, arguments.gptq);
}

QuantizePlanOptions plan_options(const QuantizeArguments& common,
                                 const CheckpointArguments& arguments) {
  QuantizePlanOptions out;
  if (common.recipe) {
    out.recipe = *common.recipe;
    check_recipe("--recipe", out.recipe, false);
  }
  for (const std::string& name : arguments.compare) check_recipe("--compare", name, false);
  out.target =
      named_argument("[quantize] --target:", arguments.target, dialect_names(), parse_dialect);
  if (common.format) {
    if (*common.format != kMeasuredFormat)
      (void)format_argument("[quantize] --format:", *common.format);
    out.format = *common.format;
  }
  if (common.tile) {
    (void)named_argument("[quantize] --tile:", *common.tile, tile_names(),
                         [](const std::string& name) { return parse_block(name, {}); });
    out.tile = *common.tile;
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
  out.include = arguments.include;
  out.exclude = arguments.exclude;
  for (const std::string& typed : arguments.recipe_for) out.recipe_for.push_back(recipe_for(typed));
  out.share = !arguments.no_share;
  out.bf16_scales = arguments.scale_rounding == "bf16";
  out.clamp_non_finite = is_clamped("quantize", common.non_finite);
  if (!arguments.shard_size.empty())
    out.shard_bytes = size_argument("[quantize] --shard-size:", arguments.shard_size);
  out.input_scales = parse_static_scale_source(arguments.input_scales);
  out.kv_scales = parse_static_scale_source(arguments.kv_scales);
  if (!arguments.statistics.empty())
    out.statistics =
        open_input_statistics(arguments.statistics, common.input, deleted_shards_of(common.output));
  return out;
}

}  // namespace octavo::cli
