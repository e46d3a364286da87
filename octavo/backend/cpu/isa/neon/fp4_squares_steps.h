// The steps of fp4_squares_lanes.h that NEON has an instruction for.
#pragma once

#include <arm_neon.h>

#include "octavo/backend/cpu/isa/portable/fp4_squares_lanes.h"

namespace octavo::cpu {
namespace {

struct NeonFp4Steps {
  static Fp4Floats at_least(Fp4Floats x, Fp4Floats least) { return vmaxnmq_f32(x, least); }
  static Fp4Floats at_most(Fp4Floats x, Fp4Floats most) { return vminnmq_f32(x, most); }
  static Fp4Floats pair_sums(Fp4Floats a, Fp4Floats b) { return vpaddq_f32(a, b); }
};

}  // namespace
}  // namespace octavo::cpu
