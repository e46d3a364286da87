// Which colour a tensor has: one scale for the whole page, so that colours can be compared.
#include <algorithm>
#include <cmath>

#include "octavo/report/page/page_internal.h"

namespace octavo::page {
namespace {

// From the worst to the best of this model in equal steps, so that the worst has the first colour
// and the best the last. Where they differ by less than `least_spread` all have the middle one:
// last digits are not to look like differences.
template <typename Value>
Grading grading(const CheckpointReport& report, double least_spread, Value&& value) {
  double lowest = INFINITY, highest = -INFINITY;
  for (const TensorReport& tensor : report.tensors) {
    if (!tensor.measured) continue;
    const double got = value(tensor.metrics);
    if (!std::isfinite(got)) continue;
    lowest = std::min(lowest, got);
    highest = std::max(highest, got);
  }
  if (lowest > highest) return {.lowest = 0, .step = least_spread, .worst = NAN, .best = NAN};
  Grading out{
      .lowest = lowest, .step = (highest - lowest) / kGrades, .worst = lowest, .best = highest};
  out.flat = highest - lowest < least_spread;
  if (out.flat) {
    out.step = least_spread;
    out.lowest = (lowest + highest) / 2 - (kGrades / 2 + 0.5) * least_spread;
  }
  return out;
}

}  // namespace

int Grading::grade(double value) const {
  if (std::isnan(value)) return 0;
  const double at = std::floor((value - lowest) / step);
  return at < 0 ? 0 : at >= kGrades ? kGrades - 1 : static_cast<int>(at);
}

double nines(double cosine) {
  return cosine >= 1 ? INFINITY : -std::log10(std::min(1 - cosine, 1.0));
}

Grading sqnr_grading(const CheckpointReport& report) {
  return grading(report, 1, [](const ErrorMetrics& metrics) { return metrics.sqnr; });
}
Grading cosine_grading(const CheckpointReport& report) {
  return grading(report, 0.125, [](const ErrorMetrics& metrics) { return nines(metrics.cosine); });
}

}  // namespace octavo::page
