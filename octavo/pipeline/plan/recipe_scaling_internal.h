// The Scaling of a weight, from a recipe's name and the user's options.
#pragma once

#include <string>

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Options that do not fit are an error for the requested recipe, and are ignored for others. Throws
// Error.
[[nodiscard]] Scaling recipe_scaling(const std::string& recipe, const QuantizePlanOptions& options);

// The scaling used for quantizing: bf16 scales where f32 scales are to have bf16 precision.
[[nodiscard]] Scaling working_scaling(const Scaling& scaling, const QuantizePlanOptions& options);

// True for a per-tensor scale at some level: members of a group share the amax it comes from.
[[nodiscard]] constexpr bool has_tensor_scale(const Scaling& scaling) {
  return scaling.tile == Tile{0, 0} || scaling.scale.format == ScaleFormat::e4m3_f32;
}

}  // namespace octavo
