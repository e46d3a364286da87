// Test cases of GEMM: operands of every kind, and awkward shapes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/octavo.h"
#include "tests/agreement/quantize_cases.h"
#include "tests/oracle/gemm_oracle.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {

// How an operand is made of f32 values: quantized, or rounded to a type.
struct OperandKind {
  std::string name;
  std::optional<Scaling> scaling{};
  DType dtype = DType::f32;
};

inline OperandKind quantized_as(const std::string& name) { return {name, preset(name)}; }
inline OperandKind valued_as(DType dtype) { return {std::string(dtype_name(dtype)), {}, dtype}; }

template <typename Edit>
OperandKind changed(const std::string& base, const std::string& name, Edit&& edit) {
  Scaling scaling = preset(base);
  edit(scaling);
  return {name, scaling};
}

// An operand, and the numbers in it as an oracle reads them.
struct MadeOperand {
  QuantizedTensor quantized{};
  Tensor values{};
  bool is_quantized = false;
  oracle::Numbers numbers{};

  [[nodiscard]] Operand operand() const {
    return is_quantized ? Operand(quantized) : Operand(values);
  }
};

// Normal, with an outlier now and then, and rows of different size, so that scales differ. Small
// enough that f16 sums of 128 products do not overflow where they are taken as they are.
inline std::vector<float> usual_values(std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    float x = normal(random) *
              std::exp2(static_cast<float>(i / std::max<std::int64_t>(cols, 1) % 5) - 6.0F);
    if (random() % 61 == 0) x *= 20.0F;
    if (random() % 37 == 0) x = 0.0F;
    values.push_back(x);
  }
  return values;
}

inline MadeOperand made(const OperandKind& kind, const std::vector<float>& values,
                        std::int64_t rows, std::int64_t cols) {
  MadeOperand made;
  made.is_quantized = kind.scaling.has_value();
  if (made.is_quantized) {
    made.quantized = quantize(values_as(values, {rows, cols}, DType::f32).view(), *kind.scaling,
                              {.backend = &reference_backend()});
    if (made.quantized.rowwise.exists()) made.numbers = oracle::numbers_of(made.quantized);
  } else {
    made.values = values_as(values, {rows, cols}, kind.dtype);
    made.numbers = oracle::numbers_of(made.values.view());
  }
  return made;
}

// Backends with GEMM kernels of their own: the others fall back to the reference. Where there is
// none, all backends.
inline std::vector<BackendInfo> multiplying_backends() {
  const std::vector<BackendInfo> all = support::every_backend();
  std::vector<BackendInfo> some = all;
  std::erase_if(some, [](const BackendInfo& backend) { return backend.kernels->gemm == nullptr; });
  return some.empty() ? all : some;
}

struct Sizes {
  std::int64_t m, n, k;
};
inline std::string to_text(const Sizes& sizes) {
  return text(sizes.m, " x ", sizes.n, " x ", sizes.k);
}

// Every awkward size of every dimension, and with each of the others' neighbours.
inline std::vector<Sizes> awkward_sizes() {
  return {{1, 1, 1},     {1, 2, 7},    {2, 7, 31},    {7, 31, 33},    {31, 33, 127}, {33, 127, 129},
          {127, 129, 1}, {129, 1, 2},  {1, 127, 33},  {2, 129, 127},  {7, 1, 129},   {31, 2, 1},
          {33, 7, 2},    {127, 31, 7}, {129, 33, 31}, {1, 129, 1000}, {5, 3, 1000},  {16, 24, 256}};
}

// Calls check(row, col, got) for each element of a result of rank two.
template <typename Check>
void for_each_element(const Tensor& result, Check&& check) {
  for (std::int64_t row = 0; row < result.shape()[0]; ++row)
    for (std::int64_t col = 0; col < result.shape()[1]; ++col)
      check(row, col, oracle::number_at(result.view(), row, col));
}

// Within the bound of its accumulator, everywhere.
inline void expect_product(const Tensor& result, const oracle::Numbers& a, const oracle::Numbers& b,
                           Accumulator accumulator, const std::string& where) {
  ASSERT_EQ(result.shape(), (Shape{a.rows, b.rows})) << where;
  int shown = 0;
  for_each_element(result, [&](std::int64_t row, std::int64_t col, double got) {
    const oracle::Element exact = oracle::element_of(a, b, row, col);
    double bound = oracle::bound_f32(a.cols, exact.magnitude);
    if (accumulator == Accumulator::f16) bound = oracle::bound_f16(a, b, row, col, exact.magnitude);
    if (accumulator == Accumulator::f64)
      bound = 2 * static_cast<double>(a.cols + 2) * 0x1p-53 * exact.magnitude;
    bound += oracle::bound_rounded(std::fabs(exact.sum) + bound, result.dtype());
    if (!(std::fabs(got - exact.sum) <= bound) && ++shown <= 3)
      ADD_FAILURE() << where << ", row " << row << ", column " << col << ": got " << got
                    << "; expected " << exact.sum << " within " << bound;
  });
}

}  // namespace octavo::testing
