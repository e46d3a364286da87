#include "octavo/report/error_ranges.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace octavo {

std::span<const NamedMetric> named_metrics() {
  static constexpr std::array<NamedMetric, 7> kMetrics{
      {{"mse", &ErrorMetrics::mse},
       {"relative_l2", &ErrorMetrics::relative_l2},
       {"sqnr", &ErrorMetrics::sqnr},
       {"cosine", &ErrorMetrics::cosine},
       {"max_abs", &ErrorMetrics::max_abs},
       {"saturated", &ErrorMetrics::saturated_share},
       {"flushed", &ErrorMetrics::flushed_share}}};
  return kMetrics;
}

double six_digits(double value) {
  if (!std::isfinite(value)) return value;
  // to_chars, because printf writes a comma where the program's locale has one.
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value,
                                 std::chars_format::scientific, 5);
  double out = 0;
  std::from_chars(digits.data(), end.ptr, out);
  return out;
}

void ErrorRanges::add(const std::string& tensor, const ErrorMetrics& of) {
  const bool first = metrics.empty();
  for (std::size_t i = 0; i < named_metrics().size(); ++i) {
    const NamedMetric& metric = named_metrics()[i];
    const double value = six_digits(of.*metric.value);
    if (first) {
      metrics.push_back({std::string(metric.name), value, value, tensor, tensor});
      continue;
    }
    MetricRange& range = metrics[i];
    if (std::isnan(range.least)) continue;
    if (std::isnan(value) || value < range.least) {
      range.least = value;
      range.least_of = tensor;
    }
    if (std::isnan(value) || value > range.greatest) {
      range.greatest = value;
      range.greatest_of = tensor;
    }
  }
  const std::int64_t not_counted = of.elements - of.sums.count;
  if (not_counted > 0 && uncounted == 0) uncounted_of = tensor;
  uncounted += not_counted;
}

const MetricRange* ErrorRanges::find(std::string_view metric) const {
  const auto found = std::find_if(metrics.begin(), metrics.end(),
                                  [&](const MetricRange& one) { return one.metric == metric; });
  return found == metrics.end() ? nullptr : &*found;
}

}  // namespace octavo
