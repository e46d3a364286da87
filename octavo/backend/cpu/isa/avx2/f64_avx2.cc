#include <immintrin.h>

#include "octavo/backend/cpu/isa/avx2/avx2_internal.h"
#include "octavo/backend/cpu/isa/avx2/f64_update_kernel.h"

namespace octavo::cpu {
namespace {

struct Avx2Doubles {
  using Vector = __m256d;
  static constexpr int kLanes = 4;

  static Vector zero() { return _mm256_setzero_pd(); }
  static Vector splat(double x) { return _mm256_set1_pd(x); }
  static Vector load(const double* from) { return _mm256_loadu_pd(from); }
  static void store(Vector v, double* to) { _mm256_storeu_pd(to, v); }
  static Vector minus(Vector a, Vector b) { return _mm256_sub_pd(a, b); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
};

}  // namespace

void avx2_subtract_f64(const F64Update& update) { subtract_f64_panels<Avx2Doubles, 2>(update); }

}  // namespace octavo::cpu
