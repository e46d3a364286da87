#include <arm_neon.h>

#include "bench/probe/peak.h"

namespace octavo::probe {
namespace {

struct Smmla : ManyRegisters {
  using Sum = int32x4_t;
  using Operand = int8x16_t;
  static constexpr double kOperations = 64;  // 2 x 8 times 8 x 2
  static Sum add_product(Sum sum, Operand a, Operand b) { return vmmlaq_s32(sum, a, b); }
};

}  // namespace

double peak_smmla(int iterations) { return peak<Smmla>(iterations); }

}  // namespace octavo::probe
