// Statistics of inputs, applied to a plan.
#pragma once

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Attaches static scales to the actions' outputs, and checks that policy wmse has what it needs.
// Throws Error that names what is missing.
void apply_statistics(const CheckpointReader& source, QuantizePlan& plan);

}  // namespace octavo
