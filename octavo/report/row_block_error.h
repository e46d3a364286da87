// Error metrics of a tensor that is never in memory as a whole: it is measured in row blocks, from
// several threads, and accumulated. Sums are added in the order of the row blocks, whatever order
// they arrive in, so the result depends on the partition alone.
//
// This is the fast path: differences are taken and squared in f32 SIMD lanes.
// docs/numerics/metrics.md says what is exact and bounds the relative error of sums (2e-6);
// measure_error sums in f64.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/quant/quantized_tensor.h"
#include "octavo/report/metrics.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct RowBlockErrorOptions {
  // Values and codes of every so many rows are counted into histograms; 0: of none.
  std::int64_t histogram_every = 1;
  // Index of the block's first row in the tensor: selects the rows for histograms.
  std::int64_t first_row = 0;
  // The amax of the block's values; NaN where it is unknown, which is slow.
  float amax = std::numeric_limits<float>::quiet_NaN();
  // The largest relative error known from other row blocks of the tensor: at 1 the search for
  // larger ones is skipped. For codes rounded to nearest.
  float known_max_relative = 0.0F;
};

// By exponent of f32: [i] counts 2^(i - 127) up to 2^(i - 126), [0] zero and what is smaller.
using ExponentCounts = std::array<std::int64_t, 256>;

struct RowBlockError {
  std::int64_t elements = 0;
  double error2 = 0, value2 = 0, result2 = 0;
  double max_abs = 0, max_relative = 0, amax = 0;
  std::int64_t count = 0, finite = 0;  // finite before and after; finite before
  std::int64_t saturated = 0, flushed = 0, zeros = 0;
  NonFiniteCounts input{}, result{};
  ScaleRange scales{};
  ExponentCounts values{}, scale_counts{};
  ExponentCounts results{};  // of the dequantized values of the counted rows
  std::int64_t result_zeros = 0;
  std::vector<std::int64_t> codes{};
  std::int64_t nbytes = 0;
};

// One thread, dense values [rows, K] on the CPU, rowwise codes.
[[nodiscard]] RowBlockError measure_row_block(const View& values, const QuantizedTensor& row_block,
                                              const RowBlockErrorOptions& options = {});

// Accumulated error of all row blocks of a tensor.
class TensorError {
 public:
  explicit TensorError(std::size_t row_blocks = 0) : sums_(row_blocks) {}
  // Not from two threads at once.
  void add(std::size_t ordinal, const RowBlockError& row_block);
  // There are no more row blocks: packs the sums, since a checkpoint may have a hundred thousand
  // tensors and counts alone are 8 KiB each. Results do not change.
  void settle();
  [[nodiscard]] ErrorMetrics metrics() const;
  [[nodiscard]] double max_relative() const {
    return open_.empty() ? 0.0 : open_.front().max_relative;
  }
  // Serialized state, for a later process: a restored object has the same metrics().
  [[nodiscard]] std::string kept() const;
  [[nodiscard]] static TensorError restored(std::string_view kept);
  // Histogram of the dequantized values, in the bins of metrics().values; empty where nothing was
  // counted.
  [[nodiscard]] ValueHistogram result_values() const;
  [[nodiscard]] ExponentCounts scale_counts() const { return all().scale_counts; }

 private:
  struct Sums {
    double error2 = 0, value2 = 0, result2 = 0;
  };
  [[nodiscard]] RowBlockError all() const;

  std::vector<Sums> sums_;
  std::vector<RowBlockError> open_;  // at most one, until settle()
  std::string packed_;               // kept(), when they are all there
};

}  // namespace octavo
