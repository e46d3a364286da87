// Oracle of align_exponents that shares no code with kernels: all values of a format in f64, and
// the nearest one by exhaustive search.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/quant/align_exponents.h"

namespace octavo::align_testing {

using Bytes = std::vector<std::uint8_t>;

// By the tables of OCP OFP8.
inline double number_of(bool e5m2_codes, int code) {
  const int mantissa_bits = e5m2_codes ? 2 : 3, bias = e5m2_codes ? 15 : 7;
  const int magnitude = code & 0x7F, exponent = magnitude >> mantissa_bits;
  const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
  const double sign = code >= 0x80 ? -1.0 : 1.0;
  if (e5m2_codes ? magnitude > 0x7C : magnitude == 0x7F) return std::nan("");
  if (e5m2_codes && magnitude == 0x7C) return sign * std::numeric_limits<double>::infinity();
  const double step = std::ldexp(1.0, 1 - bias - mantissa_bits);
  if (exponent == 0) return sign * mantissa * step;
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

// The nearest finite number of that sign; of two, the one with the even code.
inline int nearest_code(bool e5m2_codes, double value, bool negative) {
  int best = -1;
  double least = std::numeric_limits<double>::infinity();
  for (int code = negative ? 0x80 : 0; code < (negative ? 0x100 : 0x80); ++code) {
    const double number = number_of(e5m2_codes, code);
    if (!std::isfinite(number)) continue;
    const double distance = std::fabs(number - value);
    if (distance < least || (distance == least && code % 2 == 0)) {
      least = distance;
      best = code;
    }
  }
  return best;
}

struct Wanted {
  Bytes codes;
  std::vector<float> scales;  // run by run, rows beside each other
  std::int64_t changed = 0;
};

struct Case {
  bool e5m2_codes = false;
  std::int64_t rows = 0, cols = 0;
  Bytes codes{}, exponents{};

  [[nodiscard]] std::int64_t blocks() const { return (cols + 31) / 32; }
  [[nodiscard]] Scaling scaling() const { return preset(e5m2_codes ? "mxfp8:e5m2" : "mxfp8"); }
  [[nodiscard]] QuantizedTensor tensor(const Shape& shape) const {
    const Tensor code_tensor = Tensor::codes(shape, scaling().format);
    Shape grid = shape;
    grid[grid.rank() - 1] = blocks();
    const Tensor scales = Tensor::codes(grid, e8m0fnu);
    std::copy(codes.begin(), codes.end(), code_tensor.span<std::uint8_t>().begin());
    std::copy(exponents.begin(), exponents.end(), scales.span<std::uint8_t>().begin());
    return quantized_from(shape, scaling(), code_tensor, scales);
  }
  [[nodiscard]] QuantizedTensor tensor() const { return tensor({rows, cols}); }

  [[nodiscard]] Wanted aligned(AlignTo to) const {
    Wanted wanted{.codes = codes, .scales = {}};
    const std::int64_t run = to == AlignTo::rows ? std::max<std::int64_t>(cols, 1) : 128;
    for (std::int64_t first = 0; first < cols; first += run)
      for (std::int64_t row = 0; row < rows; ++row) align_run(row, first, run, wanted);
    return wanted;
  }

 private:
  void align_run(std::int64_t row, std::int64_t first, std::int64_t run, Wanted& wanted) const {
    const std::int64_t end = std::min(first + run, cols);
    const auto exponent = [&](std::int64_t col) {
      return int{exponents[static_cast<std::size_t>(row * blocks() + col / 32)]};
    };
    int top = 0;
    for (std::int64_t col = first; col < end; ++col) top = std::max(top, exponent(col));
    wanted.scales.push_back(top == 255 ? std::nanf("")
                                       : static_cast<float>(std::ldexp(1.0, top - 127)));
    for (std::int64_t col = first; col < end && top != 255; ++col) {
      const auto at = static_cast<std::size_t>(row * cols + col);
      const double value = number_of(e5m2_codes, codes[at]);
      if (!std::isfinite(value)) continue;
      const double lowered = std::ldexp(value, exponent(col) - top);
      const int made = nearest_code(e5m2_codes, lowered, codes[at] >= 0x80);
      wanted.codes[at] = static_cast<std::uint8_t>(made);
      wanted.changed += number_of(e5m2_codes, made) != lowered ? 1 : 0;
    }
  }
};

inline std::string difference(const QuantizedTensor& got, const Wanted& wanted) {
  const auto codes = got.rowwise.codes.span<const std::uint8_t>();
  for (std::size_t i = 0; i < wanted.codes.size(); ++i)
    if (codes[i] != wanted.codes[i])
      return text("code ", i, ": got ", int{codes[i]}, "; expected ", int{wanted.codes[i]});
  const auto* scales = static_cast<const float*>(got.rowwise.scales.view().data);
  if (element_count(got.rowwise.scales.shape()) != static_cast<std::int64_t>(wanted.scales.size()))
    return text("scales of shape ", to_string(got.rowwise.scales.shape()));
  for (std::size_t i = 0; i < wanted.scales.size(); ++i)
    if (scales[i] != wanted.scales[i] && !(std::isnan(scales[i]) && std::isnan(wanted.scales[i])))
      return text("scale ", i, ": got ", scales[i], "; expected ", wanted.scales[i]);
  return "";
}

inline Case random_case(bool e5m2_codes, std::int64_t rows, std::int64_t cols, int spread,
                        bool with_nan, unsigned seed) {
  std::mt19937 random(seed);
  Case made{.e5m2_codes = e5m2_codes, .rows = rows, .cols = cols};
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    auto code = static_cast<std::uint8_t>(random());
    if (!with_nan && !std::isfinite(number_of(e5m2_codes, code))) code = 0x11;
    made.codes.push_back(code);
  }
  for (std::int64_t i = 0; i < rows * made.blocks(); ++i)
    made.exponents.push_back(
        static_cast<std::uint8_t>(with_nan && random() % 61 == 0
                                      ? 255
                                      : 120 + static_cast<int>(random() % (unsigned(spread) + 1))));
  return made;
}

}  // namespace octavo::align_testing
