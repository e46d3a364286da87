// Which file of the output gets which tensor, and how large it becomes.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Gives every action its file, names the files, and adds up sizes. Throws Error when two tensors
// would have one name, as `op`.
void place_actions(std::string_view op, const CheckpointReader& source, QuantizePlan& plan);

}  // namespace octavo
