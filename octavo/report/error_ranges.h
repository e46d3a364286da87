// ErrorRanges: of each metric that limits are for (gate.h) the least and the greatest value that
// any tensor has. A folder keeps them when the tensors' own metrics are gone: enough to judge any
// limit again.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/report/metrics.h"

namespace octavo {

struct NamedMetric {
  std::string_view name;
  double ErrorMetrics::*value;
};
[[nodiscard]] OCTAVO_API std::span<const NamedMetric> named_metrics();

// With six digits, as reports show it and limits judge it: the last digits of a sum depend on the
// processor, and what is judged must be what is kept.
[[nodiscard]] OCTAVO_API double six_digits(double value);

// Values with six digits.
struct MetricRange {
  std::string metric;
  // NaN where that of a tensor is, which misses every limit.
  double least = 0, greatest = 0;
  std::string least_of, greatest_of;  // names of tensors: untrusted
};

struct OCTAVO_API ErrorRanges {
  std::vector<MetricRange> metrics{};
  // Values that no metric counts, as they are NaN or Inf, and the first tensor that has any.
  std::int64_t uncounted = 0;
  std::string uncounted_of{};

  void add(const std::string& tensor, const ErrorMetrics& of);
  [[nodiscard]] const MetricRange* find(std::string_view metric) const;
};

}  // namespace octavo
