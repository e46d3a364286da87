// TensorError: accumulation over the row blocks of a tensor.
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

void TensorError::add(std::size_t ordinal, const RowBlockError& row_block) {
  if (open_.empty()) open_.emplace_back();
  RowBlockError& total = open_.front();
  if (ordinal >= sums_.size()) sums_.resize(ordinal + 1);
  sums_[ordinal] = {row_block.error2, row_block.value2, row_block.result2};
  total.elements += row_block.elements;
  total.max_abs = std::max(total.max_abs, row_block.max_abs);
  total.max_relative = std::max(total.max_relative, row_block.max_relative);
  total.amax = std::max(total.amax, row_block.amax);
  total.count += row_block.count;
  total.finite += row_block.finite;
  total.saturated += row_block.saturated;
  total.flushed += row_block.flushed;
  total.zeros += row_block.zeros;
  total.result_zeros += row_block.result_zeros;
  total.input.nan += row_block.input.nan;
  total.input.inf += row_block.input.inf;
  total.result.nan += row_block.result.nan;
  total.result.inf += row_block.result.inf;
  total.nbytes += row_block.nbytes;
  ScaleRange& range = total.scales;
  range.count += row_block.scales.count;
  range.nan += row_block.scales.nan;
  range.zero += row_block.scales.zero;
  if (row_block.scales.least > 0)
    range.least =
        range.least == 0 ? row_block.scales.least : std::min(range.least, row_block.scales.least);
  range.most = std::max(range.most, row_block.scales.most);
  for (std::size_t i = 0; i < total.values.size(); ++i) {
    total.values[i] += row_block.values[i];
    total.results[i] += row_block.results[i];
    total.scale_counts[i] += row_block.scale_counts[i];
  }
  if (total.codes.size() < row_block.codes.size()) total.codes.resize(row_block.codes.size());
  for (std::size_t i = 0; i < row_block.codes.size(); ++i) total.codes[i] += row_block.codes[i];
}

// Sums are added in the order of their row blocks.
RowBlockError TensorError::all() const {
  if (!packed_.empty()) return unpacked_row_block(packed_);
  RowBlockError out = open_.empty() ? RowBlockError{} : open_.front();
  for (const Sums& sums : sums_) {
    out.error2 += sums.error2;
    out.value2 += sums.value2;
    out.result2 += sums.result2;
  }
  return out;
}

std::string TensorError::kept() const {
  return packed_.empty() ? packed_row_block(all()) : packed_;
}

void TensorError::settle() {
  packed_ = kept();
  packed_.shrink_to_fit();
  sums_ = std::vector<Sums>();  // the memory too, which {} would keep
  open_ = std::vector<RowBlockError>();
}

TensorError TensorError::restored(std::string_view kept) {
  TensorError out;
  out.packed_ = packed_row_block(unpacked_row_block(kept));  // untrusted text, normalized
  return out;
}

ValueHistogram TensorError::result_values() const {
  const RowBlockError total = all();
  return histogram_of(total.results, total.result_zeros);
}

ErrorMetrics TensorError::metrics() const {
  const RowBlockError total = all();
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
