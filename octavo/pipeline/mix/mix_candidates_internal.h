// Which recipes a mix may be made of: those of the target, and of them the sets that one folder can
// have and a loader reads.
#pragma once

#include <string>
#include <vector>

#include "octavo/pipeline/mix/mix_units_internal.h"

namespace octavo::mix {

// Where the user names none. "none" keeps a weight as it is.
[[nodiscard]] std::vector<std::string> default_candidates(Dialect target);

// The model under each candidate but "none". Throws the first one's Error where none is possible.
[[nodiscard]] std::vector<Candidate> plan_candidates(const CheckpointReader& source,
                                                     const QuantizePlanOptions& options,
                                                     const std::vector<std::string>& recipes);

// Sets of recipes (by index into Units::recipes, "none" in each of them where it is a choice) that
// the target holds together and at least one loader of its own reads; the largest ones, none
// within another.
[[nodiscard]] std::vector<std::vector<bool>> possible_sets(const CheckpointReader& source,
                                                           Dialect target, const Units& units);

}  // namespace octavo::mix
