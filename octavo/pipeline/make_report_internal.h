// Builds the CheckpointReport of quantize_checkpoint from its plan and measurements.
#pragma once

#include "octavo/pipeline/plan/provenance_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"
#include "octavo/report/checkpoint_report.h"

namespace octavo {

// Moves its parts out of `plan` and `results`, whose actions are gone afterwards: with a hundred
// thousand tensors memory does not hold both.
[[nodiscard]] CheckpointReport make_report(const CheckpointReader& source, QuantizePlan& plan,
                                           std::vector<ActionResult>& results,
                                           const Provenance& provenance, bool measure, int threads);

}  // namespace octavo
