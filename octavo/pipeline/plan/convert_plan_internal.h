// What becomes of every tensor of a quantized checkpoint: in another spelling, or as numbers.
#pragma once

#include "octavo/pipeline/plan/convert_options.h"
#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// Stacks of experts are taken apart for targets whose loaders want matrices. Throws
// Error(unsupported) with weight and reason. Both fill in what `result` says of the source.
[[nodiscard]] QuantizePlan plan_convert(const CheckpointReader& source, Dialect target,
                                        ConvertCheckpointResult& result);
[[nodiscard]] QuantizePlan plan_dequantize(const CheckpointReader& source, DType dtype,
                                           ConvertCheckpointResult& result);

}  // namespace octavo
