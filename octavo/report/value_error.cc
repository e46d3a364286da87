#include "octavo/report/value_error.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "octavo/base/error.h"

namespace octavo {
namespace {

void count_non_finite(double value, NonFiniteCounts& counts) {
  if (std::isnan(value)) ++counts.nan;
  if (std::isinf(value)) ++counts.inf;
}

// One element; `error` is x - y, which for wide values is not the difference of the two doubles.
// Squares are those of numbers times inv_unit, a power of two.
void add(RowBlockError& out, double x, double y, double error, double inv_unit = 1) {
  count_non_finite(x, out.input);
  count_non_finite(y, out.result);
  if (!std::isfinite(x)) return;
  ++out.finite;
  out.amax = std::max(out.amax, std::abs(x));
  ++out.values[std::bit_cast<std::uint32_t>(static_cast<float>(x)) >> 23 & 0xFF];
  if (x == 0) ++out.zeros;
  if (!std::isfinite(y)) return;
  ++out.count;
  if (x != 0 && y == 0) ++out.flushed;
  const auto squared = [inv_unit](double v) { return v * inv_unit * (v * inv_unit); };
  out.error2 += squared(error);
  out.value2 += squared(x);
  out.result2 += squared(y);
  out.max_abs = std::max(out.max_abs, std::abs(error));
  if (x != 0) out.max_relative = std::max(out.max_relative, std::abs(error) / std::abs(x));
}

void check_lengths(std::size_t before, std::size_t after) {
  check(before == after, ErrorCode::invalid_argument, "error", "got ", before,
        " values before and ", after, " after; expected as many");
}

}  // namespace

RowBlockError measure_values(std::span<const float> before, std::span<const float> after,
                             std::int64_t bytes) {
  check_lengths(before.size(), after.size());
  RowBlockError out;
  out.elements = static_cast<std::int64_t>(before.size());
  out.nbytes = bytes;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double x = static_cast<double>(before[i]), y = static_cast<double>(after[i]);
    add(out, x, y, x - y);
  }
  return out;
}

RowBlockError measure_values(const WideValues& before, const WideValues& after, std::int64_t bytes,
                             double unit) {
  check_lengths(before.value.size(), after.value.size());
  RowBlockError out;
  out.elements = static_cast<std::int64_t>(before.value.size());
  out.nbytes = bytes;
  for (std::size_t i = 0; i < before.value.size(); ++i) {
    const double x = before.value[i], y = after.value[i];
    // Two numbers that round to one double have a difference of 0 here, and their rests differ.
    add(out, x, y, (x - y) + (before.rest[i] - after.rest[i]), 1 / unit);
  }
  return out;
}

}  // namespace octavo
