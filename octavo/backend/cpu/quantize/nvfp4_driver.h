// NVFP4 by an Isa's own kernel, where it has one and the job asks for nothing else.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

// False: nothing was done, and the general driver has to.
bool quantize_fp4(const Isa&, const Exec&, const QuantizeJob&);

}  // namespace octavo::cpu
