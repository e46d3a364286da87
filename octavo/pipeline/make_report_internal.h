// What a call of quantize_checkpoint has to say, from its plan and what was measured.
#pragma once

#include "octavo/pipeline/plan/provenance_internal.h"
#include "octavo/pipeline/stream/stream_internal.h"
#include "octavo/report/checkpoint_report.h"

namespace octavo {

// Takes its parts out of `plan` and `results`, whose actions are gone afterwards: of a hundred
// thousand tensors there is no room for both.
[[nodiscard]] CheckpointReport make_report(const CheckpointReader& source, QuantizePlan& plan,
                                           std::vector<ActionResult>& results,
                                           const Provenance& provenance, bool measure, int threads);

}  // namespace octavo
