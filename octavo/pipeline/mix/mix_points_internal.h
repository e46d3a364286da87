// What a mixed plan was chosen among, for people: MixResult of units, frontier and mix.
#pragma once

#include "octavo/pipeline/mix/mix_units_internal.h"
#include "octavo/report/mix_result.h"

namespace octavo::mix {

// `set` has the recipes that were allowed, and `choices` what they left to each unit.
[[nodiscard]] MixResult mix_result(const Units& units, const std::vector<Candidate>& candidates,
                                   const std::vector<bool>& set,
                                   const std::vector<Choices>& choices, const Frontier& frontier,
                                   const Mix& mix);

}  // namespace octavo::mix
