// Groups of weights that share one scale, and lie in several files of a plan.
#pragma once

#include <cstddef>
#include <vector>

#include "octavo/pipeline/plan/plan.h"

namespace octavo {

// For each file the files whose amaxes it needs first: members of its groups lie there, and of
// those at least one group spans files. Empty: none.
[[nodiscard]] std::vector<std::vector<std::size_t>> amax_files(const QuantizePlan& plan);

// For each group: do its members lie in several files?
[[nodiscard]] std::vector<bool> groups_across_files(const QuantizePlan& plan);

}  // namespace octavo
