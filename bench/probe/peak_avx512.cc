#include <immintrin.h>

#include "bench/probe/peak.h"

namespace octavo::probe {
namespace {
struct Fma : ManyRegisters {
  using Sum = __m512;
  using Operand = __m512;
  static constexpr double kOperations = 32;  // 16 products
  static Sum add_product(Sum sum, Operand a, Operand b) { return _mm512_fmadd_ps(a, b, sum); }
};

}  // namespace

double peak_fma_avx512(int iterations) { return peak<Fma>(iterations); }

}  // namespace octavo::probe
