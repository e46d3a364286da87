// Assigns tensors to output shards, and computes shard sizes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Assigns every action to a file, names the files, and sums up sizes. Throws Error as `op` when two
// tensors would have one name.
void place_actions(std::string_view op, const CheckpointReader& source, QuantizePlan& plan);

// A name that says one file: .safetensors, .gguf.
[[nodiscard]] bool is_one_file(std::string_view out);
// Throws Error(invalid_argument) where there is no name, or one of another kind than the target's.
void check_output_name(std::string_view op, const std::string& out, Dialect target);

}  // namespace octavo
