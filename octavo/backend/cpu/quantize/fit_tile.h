// Scale policies that need more than the amax of a tile (percentile, mse): definitions in
// scale/fit.h. They compare and search, so unlike all other kernels here their time depends on the
// data.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/quantize/scale_batch.h"
#include "octavo/backend/cpu/quantize/tile_values.h"

namespace octavo::cpu {

// The bits of what replaces the amax, whose bits are given.
template <typename Real>
std::uint32_t fit_tile(const Isa&, const QuantizeJob&, const TileValues<Real>&, const Area&,
                       const Matrix& codes, const Encoder&, std::uint32_t amax, TensorLevel);

}  // namespace octavo::cpu
