// The root of a sum of two squares. std::hypot would need glibc 2.35, and wheels promise 2.34; what
// comes here is far from where a square overflows.
#pragma once

#include <cmath>

namespace octavo {

inline double root_sum_square(double x, double y) { return std::sqrt(x * x + y * y); }

}  // namespace octavo
