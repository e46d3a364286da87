// Range limits of a format under an encode policy, computed once per call: the largest value and
// the codes of overflow, Inf and NaN. With these, the loop of an array encoder needs no policy.
#pragma once

#include <array>
#include <cstdint>

#include "octavo/format/format.h"
#include "octavo/round/policy.h"

namespace octavo {

// Indexed by the sign of the input. A finite value beyond the range becomes overflow_field (a grid
// point: the largest finite value, or the one above it, whose code is Inf or NaN), so clamping the
// magnitude to it before rounding is all that overflow needs.
struct EncodeEdges {
  std::array<std::uint32_t, 2> overflow_field{};
  std::array<std::uint32_t, 2> inf_code{};
  std::array<std::uint32_t, 2> nan_code{};
};
EncodeEdges encode_edges(const Format& format, const EncodePolicy& policy);

// The value a magnitude field stands for on the format's grid, specials read as numbers.
double grid_value(const Format& format, std::uint32_t field);

// True when every finite value of the format, and the grid point above the largest, is an f32 and
// the format has no normal number below f32's: then a vectorized encoder can work in f32 alone.
bool fits_f32(const Format& format);

}  // namespace octavo
