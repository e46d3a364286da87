// choose_format(): E4M3 or E5M2, by the error that each has on the values.
#pragma once

#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/quant/scaling.h"
#include "octavo/tensor/view.h"

namespace octavo {

// The name that asks for it, where a format is expected.
inline constexpr std::string_view kMeasuredFormat = "auto";

// The scaling with that one of e4m3fn and e5m2 that has the smaller sum of squared errors on these
// values; e4m3fn of equals. Both are tried on all of them. Everything else of the scaling stays.
[[nodiscard]] OCTAVO_API Scaling choose_format(const View& values, const Scaling& scaling,
                                               int threads = 0);

}  // namespace octavo
