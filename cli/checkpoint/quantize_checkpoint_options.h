// Checkpoint options of octavo quantize: as typed, and as the library's options.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/tensor/quantize_plan.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo::cli {

// Options for checkpoints only, as typed.
struct CheckpointArguments {
  std::string target = "compressed-tensors", report, max_memory, shard_size;
  std::vector<std::string> include, exclude, recipe_for, compare;
  std::string scale_rounding = "bf16", nonfinite = "error";
  bool dry_run = false, no_share = false, resume = false;
};

void add_checkpoint_options(CLI::App& app, CheckpointArguments& arguments);

// Throws UsageError for an option that applies only to arrays (only to checkpoints).
void check_kind_of_options(const CLI::App& app, bool checkpoint);

// Parses each option, so that a typing error gets a suggestion. The library checks combinations and
// expressions (check_plan_options).
QuantizePlanOptions plan_options(const QuantizeArguments& common,
                                 const CheckpointArguments& arguments);

// Values of the options, for help and completion.
std::vector<std::string> scale_rounding_names();
std::vector<std::string> nonfinite_names();

}  // namespace octavo::cli
