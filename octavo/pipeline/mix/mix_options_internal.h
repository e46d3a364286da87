// A mix as the options of a plan: the recipe of most weights, and expressions for those of others.
#pragma once

#include "octavo/pipeline/mix/mix_units_internal.h"

namespace octavo::mix {

[[nodiscard]] QuantizePlanOptions mixed_options(const CheckpointReader& source,
                                                const QuantizePlanOptions& options,
                                                const Units& units, const Mix& mix);

// Plans by them. Throws Error(internal) where a unit did not become what the mix says, or the
// output is larger.
void check_mixed(const CheckpointReader& source, const QuantizePlanOptions& options,
                 const Units& units, const Mix& mix);

}  // namespace octavo::mix
