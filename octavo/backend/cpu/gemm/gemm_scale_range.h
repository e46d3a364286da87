// May scales be applied to sums instead of elements? (run * scale of B) * scale of A must neither
// overflow nor lose bits where the result itself does not.
#pragma once

#include <cstdint>

#include "octavo/backend/cpu/gemm/gemm.h"
#include "octavo/backend/cpu/gemm/gemm_operand_rows.h"

namespace octavo::cpu {

// Reads the scales of both operands, and the values where an operand has no format to bound them.
// With AppliedScales::tiles the tile scales are in the elements.
bool may_scale_sums(const GemmJob& job, std::int64_t run, AppliedScales applied_scales);

// Are elements times the scales of their tiles exact in bf16, and normal? Reads the scales.
bool applies_scales_exactly(const GemmOperand& operand);

}  // namespace octavo::cpu
