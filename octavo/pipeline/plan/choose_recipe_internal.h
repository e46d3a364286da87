// Which recipe a model gets where none is named, and what to use instead of one that leaves most of
// a model unquantized.
#pragma once

#include <functional>
#include <string_view>

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// The recipe that is tried first where none is named.
[[nodiscard]] std::string_view first_recipe(Dialect target);

// Plans with options.recipe, or with the first of the target's own recipes that leaves at most a
// tenth of the weights' values unquantized, else with the one that leaves least. What was chosen,
// and what would leave less, is the first of the plan's notes.
using MakePlan = std::function<QuantizePlan(const QuantizePlanOptions&)>;
[[nodiscard]] QuantizePlan choose_recipe(const CheckpointReader& source,
                                         const QuantizePlanOptions& options, const MakePlan& plan);

}  // namespace octavo
