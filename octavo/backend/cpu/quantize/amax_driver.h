// The amax of a matrix as a copy of it would be.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// Of a job without copies: of its values, transposed and Hadamard-transformed as the job says.
void amax_as_copied(const Isa&, const Exec&, const QuantizeJob&);

}  // namespace octavo::cpu
