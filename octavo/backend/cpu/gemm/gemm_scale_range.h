// May scales wait until products are summed? (run * scale of B) * scale of A must neither overflow
// nor lose bits on its way where the result itself does not.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"

namespace octavo::cpu {

// Looks at the scales of both operands, and at values where an operand has no format to bound them.
// With Fold::tiles those of tiles are in the lanes.
bool may_scale_sums(const GemmJob& job, std::int64_t run, AppliedScales applied_scales);

// Are lanes times the scales of their tiles exact in bf16, and normal? Looks at the scales.
bool applies_scales_exactly(const GemmOperand& operand);

}  // namespace octavo::cpu
