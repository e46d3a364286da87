// The plan for converting or dequantizing a checkpoint: the action for every tensor.
#pragma once

#include "octavo/pipeline/plan/convert_options.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Expert stacks are split for targets whose loaders need per-expert matrices. Throws
// Error(unsupported) with weight and reason. Both fill in the source's part of `result`.
[[nodiscard]] QuantizePlan plan_convert(const CheckpointReader& source, Dialect target,
                                        ConvertCheckpointResult& result);
[[nodiscard]] QuantizePlan plan_dequantize(const CheckpointReader& source, DType dtype,
                                           ConvertCheckpointResult& result);

}  // namespace octavo
