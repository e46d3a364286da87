// The error of a quantized checkpoint in a few numbers for each recipe: what config.json and the
// model card keep of a report.
#pragma once

#include <optional>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/pipeline/stream/stream_internal.h"
#include "octavo/report/error_ranges.h"

namespace octavo {

// [{"recipe": "mxfp4", "tensors": 14, "bits": 4.25, "sqnr_median": ..., "sqnr_worst": ...,
//   "worst": "model.layers.0.mlp.down_proj.weight", "sqnr_normal": ..., "cosine_lowest": ...}], by
// the order of first occurrence; rounded, because the last digits of a sum may depend on the
// processor. What is not finite is null.
[[nodiscard]] Json error_summary(const QuantizePlan& plan,
                                 const std::vector<ActionResult>& results);

// What config.json keeps to judge limits by: {"sqnr": {"least": 17.93, "least_of": "model...",
// "greatest": ..., "greatest_of": ...}, ..., "uncounted": 0}. What is not finite is a word.
[[nodiscard]] Json error_ranges(const QuantizePlan& plan, const std::vector<ActionResult>& results);
// Nothing where it has none, or some that cannot be read.
[[nodiscard]] std::optional<ErrorRanges> read_error_ranges(const Json& kept);

}  // namespace octavo
