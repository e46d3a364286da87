#include "octavo/backend/cpu/isa/portable/fp4_squares_lanes.h"
#include "octavo/backend/cpu/isa/portable/portable_internal.h"

namespace octavo::cpu::portable {
namespace {

struct PortableFp4Steps {
#if defined(__x86_64__)
  // One instruction each: the second operand, where one is NaN. GCC does not make them of a
  // condition on vectors.
  static Fp4Floats at_least(Fp4Floats x, Fp4Floats least) { return __builtin_ia32_maxps(x, least); }
  static Fp4Floats at_most(Fp4Floats x, Fp4Floats most) { return __builtin_ia32_minps(x, most); }
#else
  static Fp4Floats at_least(Fp4Floats x, Fp4Floats least) { return x > least ? x : least; }
  static Fp4Floats at_most(Fp4Floats x, Fp4Floats most) { return x < most ? x : most; }
#endif
  static Fp4Floats pair_sums(Fp4Floats a, Fp4Floats b) {
    return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
  }
};

}  // namespace

void fp4_squares(const float* x, const float* weights, std::int64_t n, const float* factors,
                 int count, float* sums) {
  fp4_squares_lanes<PortableFp4Steps>(x, weights, n, factors, count, sums);
}

}  // namespace octavo::cpu::portable
