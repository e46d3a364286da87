// Thresholds for counting: the magnitude from which a value saturates, and the one below which it
// is flushed to zero. Counting is then two comparisons per value, independent of encoding.
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

// False for stochastic rounding, where a draw decides.
bool count_edges(const Format& format, const EncodePolicy& policy, CountEdges* edges);

}  // namespace octavo::cuda
