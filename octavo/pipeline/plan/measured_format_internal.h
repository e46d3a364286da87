// The element format of a weight for the format "auto": by its error, from its values in the file.
#pragma once

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// e4m3fn or e5m2: the one with the smaller sum of squared errors when `action` is quantized as
// action.scaling says otherwise. Reads the tensor a few rows at a time; twice, where one scale is
// for all of it.
[[nodiscard]] Format measured_format(const CheckpointReader& source, const TensorAction& action);

}  // namespace octavo
