// From which magnitude on a value counts as saturated, and up to which as flushed: what a cast
// counts is then two comparisons a value, whatever it makes of it.
#pragma once

#include <cstdint>

#include "octavo/format/format.h"
#include "octavo/round/policy.h"

namespace octavo::cuda {

// Bits of f32 magnitudes, indexed by the sign of the value.
struct CountEdges {
  std::uint32_t saturated_from[2];
  std::uint32_t flushed_below[2];  // and above zero
};

// False where a draw decides.
bool count_edges(const Format& format, const EncodePolicy& policy, CountEdges* edges);

}  // namespace octavo::cuda
