// Which colour a tensor has: one scale for the whole page, so that colours can be compared.
#include <algorithm>
#include <cmath>

#include "octavo/report/page_internal.h"

namespace octavo::page {
namespace {

// Steps of a round width that take in the lowest and the highest, and never finer than `finest`:
// where all tensors are equally good, their last digits are not to look like differences.
template <typename Value>
Grading grading(const CheckpointReport& report, double finest, Value&& value) {
  double lowest = INFINITY, highest = -INFINITY;
  for (const TensorReport& tensor : report.tensors) {
    if (!tensor.measured) continue;
    const double got = value(tensor.metrics);
    if (!std::isfinite(got)) continue;
    lowest = std::min(lowest, got);
    highest = std::max(highest, got);
  }
  if (lowest > highest) return {.lowest = 0, .step = finest};
  double step = finest;
  while (std::floor(lowest / step) * step + kGrades * step <= highest) step *= 2;
  const double middle = (lowest + highest) / 2;
  // The worst lie near the low end only if there is a spread; equals lie in the middle.
  const double begin = std::floor((middle - kGrades * step / 2) / step + 0.5) * step;
  return {.lowest = std::min(begin, std::floor(lowest / step) * step), .step = step};
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
