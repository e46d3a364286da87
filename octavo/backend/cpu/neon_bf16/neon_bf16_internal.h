// What the folders that build on this one share.
#pragma once

#include "octavo/backend/cpu/neon_bf16/neon_bf16.h"
#include "octavo/backend/cpu/neon_dot/neon_dot_internal.h"

namespace octavo::cpu {

// Null where an operand is not exact in bf16.
const GemmMethod* neon_bf16_method(const GemmJob& job);

}  // namespace octavo::cpu
