// The clamped activation of gpt-oss, shared by Mlp and MixtureOfExperts.
#pragma once

#include "octavo/nn/mlp.h"
#include "octavo/tensor/tensor.h"

namespace octavo {

// [rows, 2 cols], dense f32, to [rows, cols].
[[nodiscard]] Tensor clamped(const View& rows, const MlpActivation& activation,
                             const LinearRun& run);

}  // namespace octavo
