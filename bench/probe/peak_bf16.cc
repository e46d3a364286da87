#include <arm_neon.h>

#include "bench/probe/peak.h"

namespace octavo::probe {
namespace {

struct Bfmmla : ManyRegisters {
  using Sum = float32x4_t;
  using Operand = bfloat16x8_t;
  static constexpr double kOperations = 32;  // 2 x 4 times 4 x 2
  static Sum add_product(Sum sum, Operand a, Operand b) { return vbfmmlaq_f32(sum, a, b); }
};

}  // namespace

double peak_bfmmla(int iterations) { return peak<Bfmmla>(iterations); }

}  // namespace octavo::probe
