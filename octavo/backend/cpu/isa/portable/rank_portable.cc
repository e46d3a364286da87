#include "octavo/backend/cpu/isa/portable/portable_internal.h"
#include "octavo/backend/cpu/isa/portable/rank_lanes.h"

namespace octavo::cpu::portable {

void rank_tiles(const RankedTiles& job, std::uint32_t* found) { rank_lanes<16>(job, found); }

}  // namespace octavo::cpu::portable
