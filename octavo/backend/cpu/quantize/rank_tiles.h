// Scale policy percentile: the magnitude of a rank in each tile (percentile_rank in scale/fit.h).
// Unlike the kernels for amaxes this compares and searches, so that its time depends on the data.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/isa.h"
#include "octavo/backend/cpu/quantize/tile_values.h"

namespace octavo::cpu {

// Is the percentile of every tile its amax?
bool ranks_are_amaxes(const QuantizeJob& job);

// Replaces the amaxes of a row of tiles, `area`, by the magnitudes of the job's percentile; those
// of tiles that is_searched rules out stay.
template <typename Real>
void rank_tiles(const Isa&, const QuantizeJob&, const TileValues<Real>&, const Area& area,
                std::int64_t tile_cols, std::uint32_t* amax);

}  // namespace octavo::cpu
