// Mixed plans on the command line: --budget, --fit and --candidates.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "octavo/pipeline/mix/mix.h"

namespace octavo::cli {

// As typed.
struct MixArguments {
  std::string budget, fit;
  std::vector<std::string> candidates;
};

// Null where no budget was given. Throws UsageError; `op` is "quantize" or "plan".
std::optional<MixBudget> mix_budget(const char* op, const MixArguments& arguments);

// Chooses recipes, with progress on the terminal. Where the user interrupts it the process ends as
// by that signal.
MixChoice run_mix(const char* op, const std::string& model, const MixBudget& budget,
                  const QuantizeCheckpointOptions& options);

// What was chosen, and the frontier.
std::string mix_text(const MixResult& mix);

}  // namespace octavo::cli
