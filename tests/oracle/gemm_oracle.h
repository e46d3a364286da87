// The GEMM oracle: the product of two operands as real numbers, and its error bounds: elements are
// decoded from their bytes by the tables of oracle.h, scales are found by their definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "octavo/format/parse_format.h"
#include "octavo/quant/quantized_tensor.h"
#include "octavo/tensor/view.h"
#include "tests/oracle/oracle.h"

namespace oracle {

// Asked once per number of a matrix, so the last answer is kept: looking it up by name was about
// half of the time of a test of codes under sanitizers.
inline const Oracle& oracle_of(const octavo::Format& format) {
  static std::map<std::string, Oracle> known;
  static octavo::Format last{};
  static const Oracle* found = nullptr;
  if (found == nullptr || !(format == last)) {
    const std::string name = octavo::format_name(format);
    found = &known.try_emplace(name, row_named(name)).first->second;
    last = format;
  }
  return *found;
}

// The number that the bytes of a matrix have at a place, whatever its type.
inline double number_at(const octavo::View& view, std::int64_t row, std::int64_t col) {
  const int rank = view.shape.rank();
  const auto* start = static_cast<const unsigned char*>(view.data);
  if (rank > 1) start += row * view.strides[rank - 2];
  std::uint32_t code = 0;
  if (view.packed) {
    const int bits = view.format.bits();
    for (int i = 0; i < bits; ++i) {
      const std::int64_t at = col * bits + i;
      code |= static_cast<std::uint32_t>(start[at / 8] >> (at % 8) & 1) << i;
    }
  } else {
    if (rank > 0) start += col * view.strides[rank - 1];
    if (view.dtype == octavo::DType::f64 || view.dtype == octavo::DType::f32) {
      double wide = 0;
      float narrow = 0;
      if (view.dtype == octavo::DType::f64) return std::memcpy(&wide, start, 8), wide;
      return std::memcpy(&narrow, start, 4), static_cast<double>(narrow);
    }
    const bool two = view.dtype != octavo::DType::code || view.format.bits() > 8;
    code = two ? static_cast<std::uint32_t>(start[0] | start[1] << 8) : start[0];
    if (view.dtype == octavo::DType::f16) return value_of_f16(static_cast<std::uint16_t>(code));
    if (view.dtype == octavo::DType::bf16) return value_of_bf16(static_cast<std::uint16_t>(code));
  }
  const Meaning& meaning = oracle_of(view.format).meanings()[code];
  if (meaning.kind == Kind::nan) return std::nan("");
  if (meaning.kind == Kind::inf) return meaning.negative ? -HUGE_VAL : HUGE_VAL;
  return meaning.value;
}

// [rows, cols] of numbers, each unscaled[i] * scale[i].
struct Numbers {
  std::int64_t rows = 0, cols = 0;
  std::int64_t run = 0;  // so many along a row share a scale
  double largest = 0;    // of the codes; 0 where they are values
  std::vector<double> unscaled{}, scale{}, value{};

  void add(double number, double with) {
    unscaled.push_back(number);
    scale.push_back(with);
    value.push_back(number * with);
  }
};

inline Numbers numbers_of(const octavo::View& values) {
  Numbers numbers{.rows = values.shape[0], .cols = values.shape[1], .run = values.shape[1]};
  for (std::int64_t row = 0; row < numbers.rows; ++row)
    for (std::int64_t col = 0; col < numbers.cols; ++col)
      numbers.add(number_at(values, row, col), 1.0);
  return numbers;
}

// Of the codes as they are: no Hadamard transform is undone. A product of 4 bits, 24 bits of scale
// and 24 bits of the tensor's scale is exact in f64.
inline Numbers numbers_of(const octavo::QuantizedTensor& tensor) {
  const octavo::View codes = tensor.rowwise.codes.view(), scales = tensor.rowwise.scales.view();
  Numbers numbers{.rows = tensor.shape[0], .cols = tensor.shape[1]};
  const auto extent = [](std::int64_t tile, std::int64_t size) { return tile == 0 ? size : tile; };
  const std::int64_t tile_rows = extent(tensor.scaling.tile.rows, numbers.rows);
  numbers.run = extent(tensor.scaling.tile.cols, numbers.cols);
  float tensor_scale = 1.0F;
  if (tensor.rowwise.tensor_scale.owner() != nullptr)
    std::memcpy(&tensor_scale, tensor.rowwise.tensor_scale.view().data, sizeof(float));
  for (std::int64_t row = 0; row < numbers.rows; ++row)
    for (std::int64_t col = 0; col < numbers.cols; ++col)
      numbers.add(number_at(codes, row, col),
                  number_at(scales, row / tile_rows, col / numbers.run) *
                      static_cast<double>(tensor_scale));
  // Of bytes those that are there count, of shorter codes all that could be.
  if (codes.format.bits() == 8) {
    for (const double number : numbers.unscaled)
      if (std::isfinite(number)) numbers.largest = std::max(numbers.largest, std::fabs(number));
    numbers.largest = std::max(numbers.largest, 0x1p-20);
  } else {
    for (const Meaning& meaning : oracle_of(codes.format).meanings())
      if (meaning.kind == Kind::number) numbers.largest = std::max(numbers.largest, meaning.value);
  }
  return numbers;
}

// Sums for one element of the product. In f64 that is off by at most cols * 2^-53 * magnitude,
// which is nothing beside what f32 may be off by.
struct Element {
  double sum = 0, magnitude = 0;  // of a b, and of |a b|
};

inline Element element_of(const Numbers& a, const Numbers& b, std::int64_t row, std::int64_t col) {
  Element element;
  const auto* x = a.value.data() + row * a.cols;
  const auto* y = b.value.data() + col * b.cols;
  for (std::int64_t k = 0; k < a.cols; ++k) {
    element.sum += x[k] * y[k];
    element.magnitude += std::fabs(x[k] * y[k]);
  }
  return element;
}

// How far sums may be from exact before the epilogue; docs/numerics/gemm.md derives these.
inline constexpr double kUnitF32 = 0x1p-24, kUnitF16 = 0x1p-11;

// Each term is rounded at most K times while it is added up, and six times more: both operands to
// f32, their scales, and the product with them. The instructions that add pairs round half as often
// and twice as much. What is below 2^-126 may be flushed.
inline double bound_f32(std::int64_t depth, double magnitude) {
  const double roundings = static_cast<double>(depth) + 8;
  return roundings * kUnitF32 * magnitude * (1 + roundings * kUnitF32) +
         static_cast<double>(depth) * 0x1p-126;
}

// Runs of at most 128 products in f16, runs in f32. In f16 an operand of codes is a power of two
// smaller, or up to 128 times larger, such that the largest code is just not above 16; what is then
// below its normal numbers is off by 2^-25.
inline double bound_f16(const Numbers& a, const Numbers& b, std::int64_t row, std::int64_t col,
                        double magnitude) {
  const auto grow = [](const Numbers& numbers) {
    double factor = numbers.largest > 0 ? 0x1p-7 : 1;
    while (numbers.largest > 16 * factor) factor *= 2;
    return factor;
  };
  const double grow_a = grow(a), grow_b = grow(b);
  double tiny = 0;
  for (std::int64_t k = 0; k < a.cols; ++k) {
    const auto i = static_cast<std::size_t>(row * a.cols + k),
               j = static_cast<std::size_t>(col * b.cols + k);
    const double unit_a = grow_a * a.scale[i], unit_b = grow_b * b.scale[j];
    tiny += std::fabs(a.value[i]) * unit_b + std::fabs(b.value[j]) * unit_a + unit_a * unit_b;
  }
  const double run = static_cast<double>(std::min({a.run, b.run, a.cols, std::int64_t{128}})) + 2;
  const double in_f16 = run * kUnitF16 / (1 - run * kUnitF16);
  return in_f16 * magnitude + 0x1p-25 * 1.1 * tiny + bound_f32(a.cols, magnitude * (1 + in_f16));
}

// The last rounding, to a type of the output.
inline double bound_rounded(double value, octavo::DType dtype) {
  switch (dtype) {
    case octavo::DType::f64:
      return 0x1p-53 * std::fabs(value);
    case octavo::DType::f16:
      return std::max(kUnitF16 * std::fabs(value), 0x1p-25);
    case octavo::DType::bf16:
      return 0x1p-8 * std::fabs(value);
    default:
      return kUnitF32 * std::fabs(value);
  }
}

}  // namespace oracle
