// The median as reports have it: the upper one of two in the middle.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace octavo {

// NaN of nothing; none of the values may be NaN.
[[nodiscard]] inline double median(std::vector<double> values) {
  if (values.empty()) return NAN;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace octavo
