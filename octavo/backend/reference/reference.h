// The reference backend: obvious scalar loops, slow, that define the right results of every other
// backend.
#pragma once

#include "octavo/backend/kernels.h"

namespace octavo::reference {

extern const Kernels kReferenceKernels;

}  // namespace octavo::reference
