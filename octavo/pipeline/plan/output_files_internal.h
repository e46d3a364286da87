// Assigns tensors to output shards, and computes shard sizes.
#pragma once

#include <cstdint>
#include <string_view>

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Assigns every action to a file, names the files, and sums up sizes. Throws Error as `op` when two
// tensors would have one name.
void place_actions(std::string_view op, const CheckpointReader& source, QuantizePlan& plan);

}  // namespace octavo
