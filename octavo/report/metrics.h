// measure_error(): error metrics of a quantized tensor (MSE, SQNR, cosine, ...), per tensor, row
// and tile. Every number is defined in docs/numerics/metrics.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/tensor/view.h"

namespace octavo {

struct Kernels;

// Sums over some of the elements, those that are finite before and after: a row, a tile, or all.
struct ErrorSums {
  std::int64_t count = 0;
  double error2 = 0;   // of (x - y)^2, where x is the value and y its dequantized value
  double value2 = 0;   // of x^2
  double max_abs = 0;  // the largest |x - y|
  // Unit of x and y before squaring: 1, or a power of two where all of a tensor is so large or
  // small (f64 only) that squares would overflow or underflow.
  double unit = 1;

  [[nodiscard]] double mse() const {
    return count > 0 ? error2 / static_cast<double>(count) * unit * unit : 0.0;
  }
  // ||x - y|| / ||x||; 0 where there is no error, even if all values are zero.
  [[nodiscard]] double relative_l2() const {
    return error2 == 0 ? 0.0 : std::sqrt(error2) / std::sqrt(value2);
  }
  // In decibels; infinite where there is no error.
  [[nodiscard]] double sqnr() const {
    return error2 == 0 ? std::numeric_limits<double>::infinity()
                       : 10.0 * (std::log10(value2) - std::log10(error2));
  }
  ErrorSums& operator+=(const ErrorSums& other) {
    count += other.count;
    error2 += other.error2;
    value2 += other.value2;
    if (other.max_abs > max_abs) max_abs = other.max_abs;
    if (other.count > 0) unit = other.unit;  // parts of one measurement have the same
    return *this;
  }
  bool operator==(const ErrorSums&) const = default;
};

struct NonFiniteCounts {
  std::int64_t nan = 0, inf = 0;
  bool operator==(const NonFiniteCounts&) const = default;
};

// Of the scales that codes are multiplied by: where there are two levels, their product.
struct ScaleRange {
  std::int64_t count = 0;
  double least = 0, most = 0;  // of those that are positive and finite; 0 where none is
  std::int64_t nan = 0, zero = 0;
  bool operator==(const ScaleRange&) const = default;
};

// How many values have 2^e <= |x| < 2^(e + 1).
struct ValueHistogram {
  int first_exponent = 0;            // e of counts[0]
  std::vector<std::int64_t> counts;  // neither the first nor the last is zero
  std::int64_t zeros = 0;
  bool operator==(const ValueHistogram&) const = default;
};

// How many values it counted.
[[nodiscard]] inline std::int64_t counted_values(const ValueHistogram& histogram) {
  std::int64_t counted = histogram.zeros;
  for (const std::int64_t count : histogram.counts) counted += count;
  return counted;
}

struct MetricOptions {
  bool rows = false;        // ErrorMetrics::rows
  bool tiles = false;       // ErrorMetrics::tiles
  bool histograms = false;  // ErrorMetrics::values and codes
  // Measure the columnwise copy: rows and tiles are then those of the transpose. So it is, too,
  // where there is no other copy.
  bool columnwise = false;
  int threads = 0;  // 0: all cores the thread pool has; results do not depend on it
  const Kernels* backend = nullptr;  // null: the one the registry chooses
};

struct ErrorMetrics {
  std::int64_t elements = 0;
  ErrorSums sums{};  // sums.count elements are finite before and after; only they are in any sum
  double mse = 0, relative_l2 = 0;
  double sqnr = 0;            // decibels
  double effective_bits = 0;  // of a uniform quantizer with this SQNR of a full-scale sine
  double cosine = 1;
  double max_abs = 0;       // the largest |x - y|
  double max_relative = 0;  // the largest |x - y| / |x|, where x is not zero
  double amax = 0;          // the largest finite |x|
  std::int64_t saturated = 0, flushed = 0;
  double saturated_share = 0, flushed_share = 0;  // of the finite values
  NonFiniteCounts input{}, result{};
  ScaleRange scales{};
  double bits_per_value = 0;  // codes and scales of the copy that was measured

  std::vector<ErrorSums> rows{};      // one for every index of all dimensions but the last
  std::vector<ErrorSums> tiles{};     // in the order of the scales
  ValueHistogram values{};            // of the finite values
  std::vector<std::int64_t> codes{};  // how often each code occurs
  bool operator==(const ErrorMetrics&) const = default;
};

// One pass over values and codes; apart from what `options` asks to be returned, memory does not
// grow with the tensor. The same bits for any number of threads and any backend.
[[nodiscard]] OCTAVO_API ErrorMetrics measure_error(const View& values, const QuantizedTensor& q,
                                                    const MetricOptions& options = {});

// Between two arrays of values of the same shape, of any value types and strides, on the CPU: what
// a cast, a kernel or another library made of values. Sums are in f64 and in the order of elements;
// nothing saturates, and of scales and codes nothing is known. bits_per_value is of `result`.
[[nodiscard]] OCTAVO_API ErrorMetrics measure_error(const View& values, const View& result);

}  // namespace octavo
