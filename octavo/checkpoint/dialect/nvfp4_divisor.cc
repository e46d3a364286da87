// Converts NVFP4's second-level scale between multiplier and divisor through the amax that explains
// it.
#include <array>
#include <cmath>
#include <limits>

#include "octavo/checkpoint/dialect/nvfp4_divisor_internal.h"

namespace octavo {
namespace {

constexpr double kLargest = 448.0 * 6.0;

// x rounded to `bits` significant bits, to nearest even. Below the type's normal range it is not
// rounded: such an amax is not found, and the reciprocal is used.
double rounded(double x, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

int significant_bits(DType source) {
  switch (source) {
    case DType::bf16:
      return 8;
    case DType::f16:
      return 11;
    default:
      return 24;
  }
}

bool is_ordinary(float x) { return std::isfinite(x) && x >= std::numeric_limits<float>::min(); }

// f(amax) is `from`; returns g(amax). An amax of 24 bits is known to within one or two ulps.
template <typename Forward, typename Other>
bool by_amax(float from, double near, int bits, const Forward& forward, const Other& other,
             float& out) {
  const double amax = rounded(near, bits);
  const double ulp = std::ldexp(1.0, std::ilogb(amax) + 1 - bits);
  const int reach = bits == 24 ? 2 : 0;
  for (int step = 0; step <= 2 * reach; ++step) {
    const double candidate = amax + (step % 2 != 0 ? -1 : 1) * ((step + 1) / 2) * ulp;
    if (static_cast<float>(forward(candidate)) != from) continue;
    out = static_cast<float>(other(candidate));
    return true;
  }
  return false;
}

double as_multiplier(double amax) { return amax / kLargest; }
double as_divisor(double amax) { return kLargest / amax; }

}  // namespace

// Quotients of floats of at most 24 bits, made in double and rounded to float, are rounded once:
// 53 >= 2 * 24 + 2.
float divisor_of(float tensor_scale, DType source) {
  if (!is_ordinary(tensor_scale)) return 1.0F / tensor_scale;
  float divisor = 0;
  if (by_amax(tensor_scale, tensor_scale * kLargest, significant_bits(source), as_multiplier,
              as_divisor, divisor))
    return divisor;
  return 1.0F / tensor_scale;
}

float multiplier_of(float divisor, DType source) {
  if (!is_ordinary(divisor)) return 1.0F / divisor;
  float scale = 0;
  if (by_amax(divisor, kLargest / divisor, significant_bits(source), as_divisor, as_multiplier,
              scale))
    return scale;
  return 1.0F / divisor;
}

}  // namespace octavo
