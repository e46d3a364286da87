// verify() of a checkpoint that is only planned: the rules that need its names, shapes, schemes and
// configuration, and no file.
#pragma once

#include <vector>

#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/checkpoint/verify/verify.h"

namespace octavo {

// Findings about `model` as this dialect would write it beside the other keys of the source's
// config.json: whether loaders know method and scheme, and take these shapes and modules. Throws
// Error(unsupported) when the dialect cannot hold it.
[[nodiscard]] std::vector<Finding> verify_planned(const CheckpointReader& source, Dialect dialect,
                                                  const QuantizedModel& model);
// The loaders that it is checked for: those that serve models.
[[nodiscard]] const std::vector<Loader>& planned_loaders();

}  // namespace octavo
