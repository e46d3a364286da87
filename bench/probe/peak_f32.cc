#include <arm_neon.h>

#include "bench/probe/peak.h"

namespace octavo::probe {
namespace {

struct FmlaF32 : ManyRegisters {
  using Sum = float32x4_t;
  using Operand = float32x4_t;
  static constexpr double kOperations = 8;  // 4 products
  static Sum add_product(Sum sum, Operand a, Operand b) { return vfmaq_f32(sum, a, b); }
};

}  // namespace

double peak_fmla_f32(int iterations) { return peak<FmlaF32>(iterations); }

}  // namespace octavo::probe
