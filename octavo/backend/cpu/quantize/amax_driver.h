// The amax of a matrix after the Hadamard transform of a copy.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// For a job without copies: the amax of its values, transposed and Hadamard-transformed as the job
// says.
void amax_as_copied(const Isa&, const Exec&, const QuantizeJob&);

}  // namespace octavo::cpu
