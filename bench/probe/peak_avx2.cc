#include <immintrin.h>

#include "bench/probe/peak.h"

namespace octavo::probe {
namespace {
struct Fma {
  static constexpr std::size_t kLeft = 4, kRight = 3;  // of 16 registers
  using Sum = __m256;
  using Operand = __m256;
  static constexpr double kOperations = 16;  // 8 products
  static Sum add_product(Sum sum, Operand a, Operand b) { return _mm256_fmadd_ps(a, b, sum); }
};

}  // namespace

double peak_fma_avx2(int iterations) { return peak<Fma>(iterations); }

}  // namespace octavo::probe
