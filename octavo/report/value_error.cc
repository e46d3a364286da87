#include "octavo/report/value_error.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "octavo/base/error.h"

namespace octavo {
namespace {

void count_non_finite(float value, NonFiniteCounts& counts) {
  if (std::isnan(value)) ++counts.nan;
  if (std::isinf(value)) ++counts.inf;
}

}  // namespace

RowBlockError measure_values(std::span<const float> before, std::span<const float> after,
                             std::int64_t bytes) {
  check(before.size() == after.size(), ErrorCode::invalid_argument, "error", "got ", before.size(),
        " values before and ", after.size(), " after; expected as many");
  RowBlockError out;
  out.elements = static_cast<std::int64_t>(before.size());
  out.nbytes = bytes;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const float x = before[i], y = after[i];
    count_non_finite(x, out.input);
    count_non_finite(y, out.result);
    if (!std::isfinite(x)) continue;
    ++out.finite;
    out.amax = std::max(out.amax, std::abs(static_cast<double>(x)));
    ++out.values[std::bit_cast<std::uint32_t>(x) >> 23 & 0xFF];
    if (x == 0) ++out.zeros;
    if (!std::isfinite(y)) continue;
    ++out.count;
    if (x != 0 && y == 0) ++out.flushed;
    const double error = static_cast<double>(x) - static_cast<double>(y);
    out.error2 += error * error;
    out.value2 += static_cast<double>(x) * static_cast<double>(x);
    out.result2 += static_cast<double>(y) * static_cast<double>(y);
    out.max_abs = std::max(out.max_abs, std::abs(error));
    if (x != 0)
      out.max_relative =
          std::max(out.max_relative, std::abs(error) / std::abs(static_cast<double>(x)));
  }
  return out;
}

}  // namespace octavo
