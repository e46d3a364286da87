// Checkpoint options of octavo quantize: as typed, and as the library's options.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/checkpoint/gptq_options.h"
#include "cli/checkpoint/mix_run.h"
#include "cli/checkpoint/shared_options.h"
#include "cli/tensor/quantize_plan.h"
#include "octavo/pipeline/plan/plan.h"

namespace CLI {
class App;  // its header takes longer to compile than most of what includes this one
}

namespace octavo::cli {

// Options for checkpoints only, as typed.
struct CheckpointArguments {
  std::string target = "compressed-tensors", report, max_memory, shard_size;
  std::vector<std::string> include, exclude, recipe_for, compare;
  std::string scale_rounding = "bf16";
  std::string statistics, input_scales = "none", kv_scales = "none";
  bool dry_run = false, no_share = false, resume = false, follow_links = false;
  bool delete_source = false;
  MixArguments mix{};
  SharedArguments shared{};
  GptqArguments gptq{};
};

void add_checkpoint_options(CLI::App& app, CheckpointArguments& arguments);
// Of these the ones that a plan depends on, and those of a recipe that checkpoints have.
void add_plan_options(CLI::App& app, CheckpointArguments& arguments);
void add_recipe_options(CLI::App& app, QuantizeArguments& arguments);
// Names of all that a plan is made by: these two, and --non-finite.
std::vector<std::string> plan_option_names();

// Shows options for one kind of input under a heading of their own, in help.
void group_options_by_input(CLI::App& app);

// Throws UsageError for an option that applies only to arrays (only to checkpoints).
void check_kind_of_options(const CLI::App& app, bool checkpoint);

// Parses each option, so that a typing error gets a suggestion. The library checks combinations and
// expressions (check_plan_options).
QuantizePlanOptions plan_options(const QuantizeArguments& common,
                                 const CheckpointArguments& arguments);

// Options that several commands have. --nonfinite is understood for --non-finite.
void add_non_finite_option(CLI::App& app, std::optional<std::string>& into,
                           const std::string& help);
void add_follow_links_flag(CLI::App& app, bool& into);
// The value of --non-finite for a checkpoint: error (default) or clamp. Throws UsageError.
bool is_clamped(std::string_view op, const std::optional<std::string>& typed);

// Values of the options, for help and completion.
std::vector<std::string> scale_rounding_names();
std::vector<std::string> clamp_names();
std::vector<std::string> static_scale_names();

}  // namespace octavo::cli
