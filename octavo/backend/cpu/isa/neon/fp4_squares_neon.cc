#include <arm_neon.h>

#include "octavo/backend/cpu/isa/neon/fp4_squares_steps.h"
#include "octavo/backend/cpu/isa/neon/neon_internal.h"

namespace octavo::cpu {

void neon_fp4_squares(const float* x, const float* weights, std::int64_t n, const float* factors,
                      int count, float* sums) {
  fp4_squares_lanes<NeonFp4Steps>(x, weights, n, factors, count, sums);
}

}  // namespace octavo::cpu
