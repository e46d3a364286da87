// The obvious scalar loops: slow, and the truth that every other backend is held to.
#pragma once

#include "octavo/backend/kernels.h"

namespace octavo::reference {

extern const Kernels kReferenceKernels;

}  // namespace octavo::reference
