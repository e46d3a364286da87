// All bands of a tensor, added up.
#include <algorithm>
#include <cmath>

#include "octavo/report/band_error.h"

namespace octavo {
namespace {

ValueHistogram histogram_of(ExponentCounts counts, std::int64_t zeros) {
  ValueHistogram out;
  out.zeros = zeros;
  counts[0] -= zeros;  // what is left there is subnormal
  const auto filled = [](std::int64_t count) { return count > 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), filled);
  if (first == counts.end()) return out;
  const auto end = std::find_if(counts.rbegin(), counts.rend(), filled).base();
  out.first_exponent = static_cast<int>(first - counts.begin()) - 127;
  out.counts.assign(first, end);
  return out;
}

// 1 - cosine is (e^2 - d^2) / (2 |x| |y|) with d = |x| - |y|: nothing large is subtracted from
// anything large, so that it is known as well as the sums are.
double cosine_of(double error2, double value2, double result2) {
  if (value2 == 0 && result2 == 0) return 1;
  if (value2 == 0 || result2 == 0) return 0;
  const double x = std::sqrt(value2), y = std::sqrt(result2), d = (value2 - result2) / (x + y);
  return std::clamp(1 - (error2 - d * d) / (2 * x * y), -1.0, 1.0);
}

}  // namespace

void TensorError::add(std::size_t ordinal, const BandError& band) {
  if (ordinal >= sums_.size()) sums_.resize(ordinal + 1);
  sums_[ordinal] = {band.error2, band.value2, band.result2};
  total_.elements += band.elements;
  total_.max_abs = std::max(total_.max_abs, band.max_abs);
  total_.max_relative = std::max(total_.max_relative, band.max_relative);
  total_.amax = std::max(total_.amax, band.amax);
  total_.count += band.count;
  total_.finite += band.finite;
  total_.saturated += band.saturated;
  total_.flushed += band.flushed;
  total_.zeros += band.zeros;
  total_.result_zeros += band.result_zeros;
  total_.input.nan += band.input.nan;
  total_.input.inf += band.input.inf;
  total_.result.nan += band.result.nan;
  total_.result.inf += band.result.inf;
  total_.nbytes += band.nbytes;
  ScaleRange& range = total_.scales;
  range.count += band.scales.count;
  range.nan += band.scales.nan;
  range.zero += band.scales.zero;
  if (band.scales.least > 0)
    range.least = range.least == 0 ? band.scales.least : std::min(range.least, band.scales.least);
  range.most = std::max(range.most, band.scales.most);
  for (std::size_t i = 0; i < total_.values.size(); ++i) {
    total_.values[i] += band.values[i];
    total_.results[i] += band.results[i];
    total_.scale_counts[i] += band.scale_counts[i];
  }
  if (total_.codes.size() < band.codes.size()) total_.codes.resize(band.codes.size());
  for (std::size_t i = 0; i < band.codes.size(); ++i) total_.codes[i] += band.codes[i];
}

ValueHistogram TensorError::result_values() const {
  return histogram_of(total_.results, total_.result_zeros);
}

ErrorMetrics TensorError::metrics() const {
  ErrorMetrics out;
  double result2 = 0;
  for (const Sums& sums : sums_) {
    out.sums.error2 += sums.error2;
    out.sums.value2 += sums.value2;
    result2 += sums.result2;
  }
  out.elements = total_.elements;
  out.sums.count = total_.count;
  out.sums.max_abs = total_.max_abs;
  out.mse = out.sums.mse();
  out.relative_l2 = out.sums.relative_l2();
  out.sqnr = out.sums.sqnr();
  out.effective_bits = (out.sqnr - 1.76) / 6.02;  // as measure_error has it
  out.cosine = cosine_of(out.sums.error2, out.sums.value2, result2);
  out.max_abs = total_.max_abs;
  out.max_relative = total_.max_relative;
  out.amax = total_.amax;
  out.saturated = total_.saturated;
  out.flushed = total_.flushed;
  if (total_.finite > 0) {
    out.saturated_share = static_cast<double>(out.saturated) / static_cast<double>(total_.finite);
    out.flushed_share = static_cast<double>(out.flushed) / static_cast<double>(total_.finite);
  }
  out.input = total_.input;
  out.result = total_.result;
  out.scales = total_.scales;
  if (out.elements > 0)
    out.bits_per_value =
        8.0 * static_cast<double>(total_.nbytes) / static_cast<double>(out.elements);
  if (!total_.codes.empty()) {
    out.values = histogram_of(total_.values, total_.zeros);
    out.codes = total_.codes;
  }
  return out;
}

}  // namespace octavo
