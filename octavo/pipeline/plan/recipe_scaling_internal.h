// From a recipe's name and the user's options to the Scaling of a weight.
#pragma once

#include <string>

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Options that do not fit are an error for the recipe that was asked for, and are left out for
// others. Throws Error.
[[nodiscard]] Scaling recipe_scaling(const std::string& recipe, const QuantizePlanOptions& options);

// The scaling that codes are made with: scales of bf16 where f32 ones are to have its precision.
[[nodiscard]] Scaling working_scaling(const Scaling& scaling, const QuantizePlanOptions& options);

// One scale for the whole tensor at some level: members of a group share the amax it comes from.
[[nodiscard]] constexpr bool has_tensor_scale(const Scaling& scaling) {
  return scaling.tile == Tile{0, 0} || scaling.scale.format == ScaleFormat::e4m3_f32;
}

}  // namespace octavo
