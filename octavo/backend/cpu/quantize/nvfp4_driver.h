// NVFP4 by the instruction set's own kernel, where it has one and the job needs nothing else.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// Returns false, with nothing done, where the general driver has to do it.
bool quantize_fp4(const Isa&, const Exec&, const QuantizeJob&);

}  // namespace octavo::cpu
