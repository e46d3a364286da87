// Searches of the quantizers (ranks of magnitudes, squares of errors) and errors of rows.
#include "octavo/backend/cpu/isa/avx2/fp4_squares_kernel.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"
#include "octavo/backend/cpu/isa/avx512/lanes_avx512.h"
#include "octavo/backend/cpu/isa/portable/rank_lanes.h"
#include "octavo/backend/cpu/isa/portable/row_error_lanes.h"

namespace octavo::cpu {

void avx512_rank(const RankedTiles& job, std::uint32_t* found) { rank_lanes<32>(job, found); }

void avx512_fp4_squares(const float* x, const float* weights, std::int64_t n, const float* factors,
                        int count, float* sums) {
  fp4_squares_wide<Avx512Lanes>(x, weights, n, factors, count, sums);
}

std::uint32_t avx512_row_error(const RowErrorJob& job, RowErrorSums& sums) {
  return add_row_error<PortableSteps>(job, sums);
}

}  // namespace octavo::cpu
