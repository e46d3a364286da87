#include <arm_neon.h>

#include "bench/probe/peak.h"

namespace octavo::probe {
namespace {

struct Sdot : ManyRegisters {
  using Sum = int32x4_t;
  using Operand = int8x16_t;
  static constexpr double kOperations = 32;  // 4 sums of 4 products
  static Sum add_product(Sum sum, Operand a, Operand b) { return vdotq_s32(sum, a, b); }
};

}  // namespace

double peak_sdot(int iterations) { return peak<Sdot>(iterations); }

}  // namespace octavo::probe
