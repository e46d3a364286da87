// Settings of a checkpoint side by side, whatever they differ in: under compare_recipes and
// sweep_checkpoint.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "octavo/pipeline/plan/quantize_options.h"
#include "octavo/report/recipe_comparison.h"

namespace octavo {

struct NamedSetting {
  std::string name;  // RecipeOutcome::recipe
  QuantizePlanOptions plan;
};

// Of `options`, plan and measure do not count. A setting that the target cannot hold says why;
// where that is so of all of them, the first reason is thrown.
[[nodiscard]] RecipeComparison compare_settings(const std::string& source,
                                                const std::vector<NamedSetting>& settings,
                                                const QuantizeCheckpointOptions& options);

// The progress of one of several runs over the same source, as a part of them all.
[[nodiscard]] OnProgress part_of_progress(const OnProgress& all, std::size_t index,
                                          std::size_t count,
                                          std::chrono::steady_clock::time_point start);

}  // namespace octavo
