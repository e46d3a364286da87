// All bands of a tensor, added up.
#include <algorithm>
#include <cmath>

#include "octavo/report/piece_internal.h"
#include "octavo/report/row_block_error.h"
#include "octavo/report/row_block_error_packed_internal.h"

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
  if (open_.empty()) open_.emplace_back();
  BandError& total = open_.front();
  if (ordinal >= sums_.size()) sums_.resize(ordinal + 1);
  sums_[ordinal] = {band.error2, band.value2, band.result2};
  total.elements += band.elements;
  total.max_abs = std::max(total.max_abs, band.max_abs);
  total.max_relative = std::max(total.max_relative, band.max_relative);
  total.amax = std::max(total.amax, band.amax);
  total.count += band.count;
  total.finite += band.finite;
  total.saturated += band.saturated;
  total.flushed += band.flushed;
  total.zeros += band.zeros;
  total.result_zeros += band.result_zeros;
  total.input.nan += band.input.nan;
  total.input.inf += band.input.inf;
  total.result.nan += band.result.nan;
  total.result.inf += band.result.inf;
  total.nbytes += band.nbytes;
  ScaleRange& range = total.scales;
  range.count += band.scales.count;
  range.nan += band.scales.nan;
  range.zero += band.scales.zero;
  if (band.scales.least > 0)
    range.least = range.least == 0 ? band.scales.least : std::min(range.least, band.scales.least);
  range.most = std::max(range.most, band.scales.most);
  for (std::size_t i = 0; i < total.values.size(); ++i) {
    total.values[i] += band.values[i];
    total.results[i] += band.results[i];
    total.scale_counts[i] += band.scale_counts[i];
  }
  if (total.codes.size() < band.codes.size()) total.codes.resize(band.codes.size());
  for (std::size_t i = 0; i < band.codes.size(); ++i) total.codes[i] += band.codes[i];
}

// Sums are added in the order of their bands.
BandError TensorError::all() const {
  if (!packed_.empty()) return unpacked_band(packed_);
  BandError out = open_.empty() ? BandError{} : open_.front();
  for (const Sums& sums : sums_) {
    out.error2 += sums.error2;
    out.value2 += sums.value2;
    out.result2 += sums.result2;
  }
  return out;
}

std::string TensorError::kept() const { return packed_.empty() ? packed_band(all()) : packed_; }

void TensorError::settle() {
  packed_ = kept();
  packed_.shrink_to_fit();
  sums_ = std::vector<Sums>();  // the memory too, which {} would keep
  open_ = std::vector<BandError>();
}

TensorError TensorError::restored(std::string_view kept) {
  TensorError out;
  out.packed_ = packed_band(unpacked_band(kept));  // whatever it was, it is one of ours now
  return out;
}

ValueHistogram TensorError::result_values() const {
  const BandError total = all();
  return histogram_of(total.results, total.result_zeros);
}

ErrorMetrics TensorError::metrics() const {
  const BandError total = all();
  ErrorMetrics out;
  out.sums.error2 = total.error2;
  out.sums.value2 = total.value2;
  out.elements = total.elements;
  out.sums.count = total.count;
  out.sums.max_abs = total.max_abs;
  out.cosine = cosine_of(out.sums.error2, out.sums.value2, total.result2);
  out.max_abs = total.max_abs;
  out.max_relative = total.max_relative;
  out.amax = total.amax;
  out.saturated = total.saturated;
  out.flushed = total.flushed;
  out.input = total.input;
  out.result = total.result;
  out.scales = total.scales;
  derive_ratios(out, total.finite, static_cast<std::int64_t>(total.nbytes));
  if (!total.codes.empty()) {
    out.values = histogram_of(total.values, total.zeros);
    out.codes = total.codes;
  }
  return out;
}

}  // namespace octavo
