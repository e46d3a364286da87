// The policies that look at more than the amax of a tile: definitions in scale/fit.h. They compare
// and search, so unlike all else here their time depends on the data.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/span.h"
#include "octavo/backend/cpu/tile_values.h"

namespace octavo::cpu {

struct TileRegion {
  std::int64_t row, col, rows, cols;
};

// The bits of what stands in for the amax, whose bits are given.
template <typename Real>
std::uint32_t fit_tile(const Isa&, const QuantizeJob&, const TileValues<Real>&, const TileRegion&,
                       const Matrix& codes, const Encoder&, std::uint32_t amax, float tensor_scale);

}  // namespace octavo::cpu
