// The error of a quantized checkpoint in a few numbers for each recipe: what config.json and the
// model card keep of a report.
#pragma once

#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/stream/stream_internal.h"

namespace octavo {

// [{"recipe": "mxfp4", "tensors": 14, "bits": 4.25, "sqnr_median": ..., "sqnr_worst": ...,
//   "worst": "model.layers.0.mlp.down_proj.weight", "sqnr_normal": ..., "cosine_lowest": ...}], by
// the order of first occurrence; rounded, because the last digits of a sum may depend on the
// processor. What is not finite is null.
[[nodiscard]] Json error_summary(const QuantizePlan& plan,
                                 const std::vector<ActionResult>& results);

}  // namespace octavo
