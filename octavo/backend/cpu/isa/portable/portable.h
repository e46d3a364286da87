// The kernel table in plain C++ for every format and dtype; other instruction sets fall back to its
// kernels.
#pragma once

#include "octavo/backend/cpu/isa.h"

namespace octavo::cpu {

extern const Isa kPortableIsa;
extern const ProductSpans kPortableProducts;  // on aarch64 these are fused, as fast as any
extern const Kernels kPortableKernels;

}  // namespace octavo::cpu
