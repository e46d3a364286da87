// <immintrin.h> for ARM: SIMDe's functions under the names of x86's intrinsics, and the few that it
// lacks. In the include path of the objects of tests/simde alone.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/fma.h>

#include "tests/simde/amx_tiles.h"
#include "tests/simde/missing_intrinsics.h"
