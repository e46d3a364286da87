// Weights that are stored as codes from the start (quantized_model_init).
#pragma once

#include <memory>

#include "octavo/base/macros.h"
#include "octavo/nn/linear/linear_pass.h"
#include "octavo/recipe/module_quantizers.h"

namespace octavo {

// Requantizes a weight, both copies, from new values with the existing quantizers.
[[nodiscard]] OCTAVO_API std::shared_ptr<const QuantizedTensor> requantized_weight(
    const ModuleQuantizers& quantizers, const View& values, const LinearRun& run = {});

// The same for the first values, with quantizers of the recipe. Delayed scaling has no history yet,
// and a weight that exists only as codes needs a scale at once: it is computed from these values.
[[nodiscard]] OCTAVO_API std::shared_ptr<const QuantizedTensor> first_quantized_weight(
    ModuleQuantizers& quantizers, const Recipe& recipe, const View& values,
    const LinearRun& run = {});

// A weight of one recipe as codes of another, with new quantizers for all tensors of the module,
// through its values of this type: what a change of recipe needs where there are no other values.
[[nodiscard]] OCTAVO_API std::shared_ptr<const QuantizedTensor> switched_weight(
    ModuleQuantizers& quantizers, const Recipe& recipe, const QuantizedTensor& codes, DType dtype,
    const LinearRun& run = {});

}  // namespace octavo
