// Statistics of inputs, applied to a plan.
#pragma once

#include <string>

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Attaches static scales to the actions' outputs, and checks that policy wmse has what it needs.
// Throws Error that names what is missing.
void apply_statistics(const CheckpointReader& source, QuantizePlan& plan);

// "layers.0.mlp.experts.*.down_proj" of any expert's: the experts of a layer are alike.
[[nodiscard]] std::string alike_module(const std::string& module);

}  // namespace octavo
