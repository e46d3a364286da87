// Mixed plans: a recipe for each part of a model, chosen by how much error it makes there, within a
// number of bits per weight or of bytes.
//   const MixChoice mix = choose_mix("model/", {.bits_per_weight = 4.5});
//   quantize_checkpoint("model/", "out/", {.plan = mix.plan});
// The model is read once for each candidate; nothing is written. docs/numerics/mixed-plans.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/pipeline/plan/quantize_options.h"
#include "octavo/report/mix_result.h"

namespace octavo {

// One of the two: bits per weight, scales included, of all weights that a candidate could quantize;
// or bytes of all tensors of the output.
struct MixBudget {
  double bits_per_weight = 0;
  std::uint64_t bytes = 0;
  // Recipes to choose from, "none" among them (a weight stays as it is). Empty: those of the
  // target.
  std::vector<std::string> candidates{};
};

// "4.5bpw" or "4.5". Throws Error(invalid_argument).
[[nodiscard]] OCTAVO_API double parse_bits_per_weight(std::string_view text);

struct MixChoice {
  // The options that were given, with the recipe of most weights and an expression in recipe_for
  // for those of each other recipe, behind the user's own: all that quantize_checkpoint needs, and
  // what plan files hold.
  QuantizePlanOptions plan;
  std::shared_ptr<const MixResult> result;
};

// `options` as quantize_checkpoint has them; plan.recipe is empty, and what plan.recipe_for,
// include and exclude say stays. With plan.statistics errors are those of results, weighted by
// inputs. Throws Error(invalid_argument) with the least that the candidates can where the budget is
// below it.
[[nodiscard]] OCTAVO_API MixChoice choose_mix(const std::string& source, const MixBudget& budget,
                                              const QuantizeCheckpointOptions& options = {});

}  // namespace octavo
