// The oracle of AMX's bf16 tiles: TDPBF16PS as Intel's manual has it, in integers, and the order in
// which octavo's products use it. It shares no code with octavo/backend/reference/reference_amx.cc,
// and rounds nothing with the processor but the products with scales.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "octavo/quant/quantized_tensor.h"
#include "tests/oracle/gemm_oracle.h"

namespace oracle {

__extension__ typedef unsigned __int128 Bits128;

// A float as significand * 2^exponent; subnormal ones are zeros.
struct Parts {
  bool negative = false, is_nan = false, is_inf = false;
  std::uint64_t significand = 0;
  int exponent = 0;

  explicit Parts(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t field = bits >> 23 & 0xFF, fraction = bits & 0x7FFFFF;
    negative = bits >> 31 != 0;
    is_inf = field == 255 && fraction == 0;
    is_nan = field == 255 && fraction != 0;
    if (field == 0 || field == 255) return;
    significand = fraction | 0x800000;
    exponent = static_cast<int>(field) - 150;
  }
};

// Rounds to 24 bits, to nearest even; then what is below 2^-126 is zero, from 2^128 on it is Inf.
inline float rounded(bool negative, Bits128 significand, int exponent) {
  const auto width = [](Bits128 x) {
    const auto high = static_cast<std::uint64_t>(x >> 64);
    return high != 0 ? 64 + std::bit_width(high) : std::bit_width(static_cast<std::uint64_t>(x));
  };
  const int extra = static_cast<int>(width(significand)) - 24;
  if (extra > 0) {
    const Bits128 one = 1, rest = significand & ((one << extra) - 1), half = one << (extra - 1);
    significand >>= extra;
    exponent += extra;
    if (rest > half || (rest == half && significand % 2 == 1)) significand += 1;
  }
  const int top = static_cast<int>(width(significand)) - 1 + exponent;
  const float sign = negative ? -1.0F : 1.0F;
  if (significand == 0 || top < -126) return sign * 0.0F;
  if (top > 127) return sign * HUGE_VALF;
  return sign * std::ldexp(static_cast<float>(static_cast<std::uint64_t>(significand)), exponent);
}

inline float fused_multiply_add(float x, float y, float z) {
  const Parts a(x), b(y), c(z);
  const bool negative = a.negative != b.negative;
  const bool a_zero = a.significand == 0 && !a.is_inf, b_zero = b.significand == 0 && !b.is_inf;
  const bool is_inf = a.is_inf || b.is_inf;
  if (a.is_nan || b.is_nan || c.is_nan || (a.is_inf && b_zero) || (b.is_inf && a_zero) ||
      (is_inf && c.is_inf && negative != c.negative))
    return std::nanf("");
  if (is_inf) return negative ? -HUGE_VALF : HUGE_VALF;
  if (c.is_inf) return z;
  // The larger exponent comes first, and its significand, of at most 48 bits, moves up.
  std::pair<Bits128, int> p{a.significand * b.significand, a.exponent + b.exponent},
      q{c.significand, c.exponent};
  bool p_negative = negative, q_negative = c.negative;
  if (p.first == 0 && q.first == 0) return p_negative && q_negative ? -0.0F : 0.0F;
  if (p.first == 0) return rounded(q_negative, q.first, q.second);
  if (q.first == 0) return rounded(p_negative, p.first, p.second);
  if (p.second < q.second) {
    std::swap(p, q);
    std::swap(p_negative, q_negative);
  }
  // So far below, a number cannot be seen but for not being zero: one unit below all places that
  // count stands for it.
  constexpr int kMost = 76;
  if (p.second - q.second > kMost) q = {1, p.second - kMost};
  p = {p.first << (p.second - q.second), q.second};
  if (p_negative == q_negative) return rounded(p_negative, p.first + q.first, q.second);
  if (p.first == q.first) return 0.0F;
  return p.first > q.first ? rounded(p_negative, p.first - q.first, q.second)
                           : rounded(q_negative, q.first - p.first, q.second);
}

inline constexpr std::size_t kAmxStep = 32;

// One instruction, for one element of its tile.
inline float amx_instruction(const float* a, const float* b, float accumulator) {
  float sums[2] = {0.0F, 0.0F};
  for (std::size_t i = 0; i < kAmxStep; ++i)
    sums[i % 2] = fused_multiply_add(a[i], b[i], sums[i % 2]);
  return fused_multiply_add(accumulator, 1.0F, fused_multiply_add(sums[0], 1.0F, sums[1]));
}

// Instructions one after another, from an accumulator of zero on; K is filled up with zeros.
inline float amx_chain(std::vector<float> a, std::vector<float> b) {
  const std::size_t padded = (a.size() + kAmxStep - 1) / kAmxStep * kAmxStep;
  a.resize(padded);
  b.resize(padded);
  float accumulator = 0.0F;
  for (std::size_t first = 0; first < padded; first += kAmxStep)
    accumulator = amx_instruction(a.data() + first, b.data() + first, accumulator);
  return accumulator;
}

inline float amx_chain(const std::vector<std::uint16_t>& a, const std::vector<std::uint16_t>& b) {
  const auto widened = [](const std::vector<std::uint16_t>& bits) {
    std::vector<float> values;
    for (const std::uint32_t x : bits) values.push_back(std::bit_cast<float>(x << 16));
    return values;
  };
  return amx_chain(widened(a), widened(b));
}

// What the order of sums depends on, of an operand.
struct AmxScales {
  bool is_quantized = false;
  std::int64_t tile = 0;  // elements along K that share a scale; 0: all
  octavo::ScaleFormat format = octavo::ScaleFormat::f32;
  int mantissa_bits = 0;
  float tensor_scale = 1.0F;
};

inline AmxScales amx_scales(bool is_quantized, const octavo::QuantizedTensor& tensor) {
  if (!is_quantized) return {};
  AmxScales found{.is_quantized = true,
                  .tile = tensor.scaling.tile.cols,
                  .format = tensor.scaling.scale.format,
                  .mantissa_bits = tensor.scaling.format.mantissa_bits};
  if (tensor.rowwise.tensor_scale.owner() != nullptr)
    std::memcpy(&found.tensor_scale, tensor.rowwise.tensor_scale.view().data, sizeof(float));
  return found;
}

class AmxProduct {
 public:
  AmxProduct(const Numbers& a, const AmxScales& a_scales, const Numbers& b,
             const AmxScales& b_scales)
      : a_{a, a_scales}, b_{b, b_scales} {
    std::int64_t run = 512;
    for (const Side* side : {&a_, &b_})
      if (side->changes()) run = std::gcd(run, side->scales.tile);
    const bool scales_fit_elements =
        run < 512 && a_.scales_fit_elements() && b_.scales_fit_elements();
    a_.scaled_elements = scales_fit_elements && a_.changes();
    b_.scaled_elements = scales_fit_elements && b_.changes();
    run_ = scales_fit_elements || (!a_.changes() && !b_.changes()) ? a.cols : run;
  }

  [[nodiscard]] float sum(std::int64_t row, std::int64_t col) const {
    float total = 0.0F;
    for (std::int64_t first = 0; first < a_.numbers.cols; first += run_) {
      const std::int64_t end = std::min(a_.numbers.cols, first + run_);
      const float part = amx_chain(a_.elements(row, first, end), b_.elements(col, first, end));
      if (!a_.scales.is_quantized && !b_.scales.is_quantized) return part;
      total = std::fma(part * b_.factor(col, first), a_.factor(row, first), total);
    }
    return total;
  }

 private:
  struct Side {
    const Numbers& numbers;
    AmxScales scales;
    bool scaled_elements = false;  // the scales of tiles are in the elements

    [[nodiscard]] bool changes() const {
      return scales.is_quantized && scales.tile > 0 && scales.tile < numbers.cols;
    }
    [[nodiscard]] bool scales_fit_elements() const {
      if (!changes()) return true;
      if (scales.format == octavo::ScaleFormat::e4m3_f32) return scales.mantissa_bits <= 3;
      return scales.format == octavo::ScaleFormat::e8m0 &&
             std::all_of(numbers.scale.begin(), numbers.scale.end(), [](double scale) {
               return !std::isfinite(scale) || (scale >= 0x1p-50 && scale <= 0x1p50);
             });
    }
    [[nodiscard]] std::vector<float> elements(std::int64_t row, std::int64_t first,
                                              std::int64_t end) const {
      std::vector<float> found;
      for (std::int64_t k = first; k < end; ++k) {
        const auto i = static_cast<std::size_t>(row * numbers.cols + k);
        // Numbers have both scales in one; what is divided out was multiplied without an error.
        const double scale =
            scaled_elements ? numbers.scale[i] / static_cast<double>(scales.tensor_scale) : 1.0;
        found.push_back(static_cast<float>(numbers.unscaled[i] * scale));
      }
      return found;
    }
    [[nodiscard]] float factor(std::int64_t row, std::int64_t k) const {
      const auto i = static_cast<std::size_t>(row * numbers.cols + k);
      return scaled_elements ? scales.tensor_scale : static_cast<float>(numbers.scale[i]);
    }
  };

  Side a_, b_;
  std::int64_t run_ = 0;
};

}  // namespace oracle
