// octavo quantize MODEL --compare RECIPES: recipes side by side, and nothing written but a page.
#pragma once

#include "cli/checkpoint/quantize_checkpoint_options.h"
#include "cli/globals.h"
#include "octavo/pipeline/plan/quantize_options.h"

namespace octavo::cli {

// `options` without a recipe, which arguments.compare has.
int run_compare_recipes(const QuantizeArguments& common, const CheckpointArguments& arguments,
                        QuantizeCheckpointOptions options, const Globals& globals);

}  // namespace octavo::cli
