#include "octavo/report/expected_error_internal.h"

#include <algorithm>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/quant/quantize.h"
#include "octavo/report/metrics.h"
#include "octavo/report/normal_values_internal.h"

namespace octavo {
namespace {

// 2^16 values: the sum of their squared errors has a relative deviation of about sqrt(4 / 2^16),
// less than 0.04 dB.
constexpr std::int64_t kValues = 1 << 16;
constexpr std::int64_t kLongestRow = 1 << 13, kLongestInBlocks = 1 << 9;
constexpr std::uint64_t kSeed = 1;

std::int64_t sampled_cols(const Scaling& scaling, std::span<const std::int64_t> shape) {
  const std::int64_t cols = shape.empty() ? 1 : shape.back();
  return std::clamp<std::int64_t>(cols, 1, scaling.tile.rows > 1 ? kLongestInBlocks : kLongestRow);
}

// With power-of-two scales the error depends on where in an octave the amax is: rows are spread
// over one.
void spread_over_octave(std::span<float> values, std::int64_t cols) {
  constexpr std::size_t kSteps = 8;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] *=
        std::exp2(static_cast<float>(i / static_cast<std::size_t>(cols) % kSteps) / kSteps);
}

ExpectedError measured(const Scaling& scaling, std::int64_t cols) {
  const std::int64_t unit = std::max<std::int64_t>(1, scaling.tile.rows);
  const std::int64_t rows = (kValues / cols + unit) / unit * unit;
  try {
    const Tensor values = Tensor::values(Shape{rows, cols}, DType::f32);
    fill_normal(values.span<float>(), kSeed);
    if (scaling.scale.format == ScaleFormat::e8m0) spread_over_octave(values.span<float>(), cols);
    const QuantizedTensor q = quantize(values.view(), scaling, {.threads = 1});
    const ErrorMetrics metrics = measure_error(values.view(), q, {.threads = 1});
    return {metrics.sqnr, metrics.cosine};
  } catch (const Error&) {
    return {};  // a scaling that matrices of this shape cannot have
  }
}

}  // namespace

ExpectedError expected_error(const Scaling& scaling, std::span<const std::int64_t> shape) {
  return measured(scaling, sampled_cols(scaling, shape));
}

ExpectedError ExpectedErrors::of(const Scaling& scaling, std::span<const std::int64_t> shape) {
  const std::int64_t cols = sampled_cols(scaling, shape);
  for (const Known& known : known_)
    if (known.cols == cols && known.scaling == scaling) return known.error;
  known_.push_back({scaling, cols, measured(scaling, cols)});
  return known_.back().error;
}

}  // namespace octavo
