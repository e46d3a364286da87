#include <immintrin.h>

#include "octavo/backend/cpu/isa/avx2/f64_update_kernel.h"
#include "octavo/backend/cpu/isa/avx512/avx512_internal.h"

namespace octavo::cpu {
namespace {

struct Avx512Doubles {
  using Vector = __m512d;
  static constexpr int kLanes = 8;

  static Vector zero() { return _mm512_setzero_pd(); }
  static Vector splat(double x) { return _mm512_set1_pd(x); }
  static Vector load(const double* from) { return _mm512_loadu_pd(from); }
  static void store(Vector v, double* to) { _mm512_storeu_pd(to, v); }
  static Vector minus(Vector a, Vector b) { return _mm512_sub_pd(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
};

}  // namespace

void avx512_subtract_f64(const F64Update& update) { subtract_f64_panels<Avx512Doubles, 8>(update); }

}  // namespace octavo::cpu
