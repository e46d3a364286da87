// A weight that is codes from the start, as quantized_model_init has it.
#pragma once

#include <memory>

#include "octavo/base/macros.h"
#include "octavo/nn/linear_pass.h"
#include "octavo/recipe/module_quantizers.h"

namespace octavo {

// Both copies of new values for a weight, by the quantizers there are.
[[nodiscard]] OCTAVO_API std::shared_ptr<const QuantizedTensor> requantized_weight(
    const ModuleQuantizers& quantizers, const View& values, const LinearRun& run = {});

// The same for the first values, with quantizers of the recipe. Delayed scaling knows nothing yet,
// and a weight that is only codes should not wait for a scale: it gets one from these values.
[[nodiscard]] OCTAVO_API std::shared_ptr<const QuantizedTensor> first_quantized_weight(
    ModuleQuantizers& quantizers, const Recipe& recipe, const View& values,
    const LinearRun& run = {});

}  // namespace octavo
