// The options of octavo quantize that are about checkpoints, as typed and as the library takes
// them.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/tensor/quantize_plan.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo::cli {

// What only checkpoints take, as typed.
struct CheckpointArguments {
  std::string target = "compressed-tensors", report, max_memory, shard_size;
  std::vector<std::string> include, exclude, recipe_for;
  std::string scale_rounding = "bf16", nonfinite = "error";
  bool dry_run = false, no_share = false, resume = false;
};

void add_checkpoint_options(CLI::App& app, CheckpointArguments& arguments);

// Throws UsageError where an option is given that only arrays (only checkpoints) take.
void check_kind_of_options(const CLI::App& app, bool checkpoint);

// Each read once, so that a slip gets a suggestion. Whether they go together, and what expressions
// say, is the library's to check (check_plan_options).
QuantizePlanOptions plan_options(const QuantizeArguments& common,
                                 const CheckpointArguments& arguments);

// What the options take, for help and completion.
std::vector<std::string> scale_rounding_names();
std::vector<std::string> nonfinite_names();

}  // namespace octavo::cli
