// compare_recipes: what several recipes would make of a checkpoint, without writing any of them.
//   const RecipeComparison seen = compare_recipes("model/", {"fp8-channel", "mxfp8", "nvfp4"});
// Every weight is read and quantized once for each recipe; no data is needed.
#pragma once

#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/pipeline/plan/quantize_options.h"
#include "octavo/report/recipe_comparison.h"

namespace octavo {

// `options` are those of quantize_checkpoint; plan.recipe, resume and measure do not count. A
// recipe that the target cannot hold says why (RecipeOutcome::why_not); where that is so of all of
// them, the first reason is thrown.
[[nodiscard]] OCTAVO_API RecipeComparison
compare_recipes(const std::string& source, const std::vector<std::string>& recipes,
                const QuantizeCheckpointOptions& options = {});

}  // namespace octavo
