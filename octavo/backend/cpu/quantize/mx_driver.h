// MX blocks by an Isa's own kernels, where it has them and the job asks for nothing else.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// False: nothing was done, and the general driver has to.
bool quantize_mx(const Isa&, const Exec&, const QuantizeJob&);

}  // namespace octavo::cpu
