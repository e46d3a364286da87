// Scale policies `mse` and `percentile`: which candidate scales the search tries, which rank the
// percentile is. Definitions only; backends do the search.
#pragma once

#include <cstdint>

#include "octavo/base/macros.h"
#include "octavo/scale/scale_spec.h"

namespace octavo {

// The 0-based rank, in ascending order of n magnitudes, that percentile p in (0, 100] stands for:
// nearest rank, so p = 100 is the largest.
OCTAVO_HD constexpr std::int64_t percentile_rank(std::int64_t n, double p) {
  const double exact = p / 100.0 * static_cast<double>(n);
  auto rank = static_cast<std::int64_t>(exact);
  if (static_cast<double>(rank) < exact) ++rank;  // ceil
  return rank < 1 ? 0 : rank > n ? n - 1 : rank - 1;
}

// Candidates of the least-squares search, largest first; the first of equals wins. A quotient is
// tried at 64/64, 63/64, ... of the amax down to 24/64; a power of two at the rule's own exponent
// and the two below.
OCTAVO_HD constexpr int fit_candidates(ScaleRule rule) {
  return is_power_of_two_rule(rule) ? 3 : 41;
}
OCTAVO_HD constexpr float fit_candidate(ScaleRule rule, float amax, int i) {
  if (is_power_of_two_rule(rule)) return amax * (i == 0 ? 1.0F : i == 1 ? 0.5F : 0.25F);
  return amax * (static_cast<float>(64 - i) * 0x1p-6F);
}

}  // namespace octavo
