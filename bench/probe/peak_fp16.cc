#include <arm_neon.h>

#include "bench/probe/peak.h"

namespace octavo::probe {
namespace {

struct FmlaF16 : ManyRegisters {
  using Sum = float16x8_t;
  using Operand = float16x8_t;
  static constexpr double kOperations = 16;  // 8 products
  static Sum add_product(Sum sum, Operand a, Operand b) { return vfmaq_f16(sum, a, b); }
};

}  // namespace

double peak_fmla_f16(int iterations) { return peak<FmlaF16>(iterations); }

}  // namespace octavo::probe
