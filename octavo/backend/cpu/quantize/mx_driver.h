// MX blocks by the instruction set's own kernels, where it has them and the job needs nothing else.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// Returns false, with nothing done, where the general driver has to do it.
bool quantize_mx(const Isa&, const Exec&, const QuantizeJob&);

}  // namespace octavo::cpu
