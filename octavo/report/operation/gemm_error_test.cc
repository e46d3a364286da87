#include "octavo/report/operation/gemm_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/quant/quantize.h"

namespace octavo {
namespace {

Tensor random_values(std::int64_t rows, std::int64_t cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const Tensor tensor = Tensor::values({rows, cols}, DType::f32);
  for (float& x : tensor.span<float>()) x = normal(random);
  return tensor;
}

// Long double products, element by element.
struct Plain {
  long double error2 = 0, x2 = 0, y2 = 0, product = 0, max_abs = 0;
  void add(long double x, long double y) {
    error2 += (y - x) * (y - x);
    x2 += x * x;
    y2 += y * y;
    product += x * y;
    max_abs = std::max(max_abs, std::fabs(y - x));
  }
  void expect(const ProductDistance& got, const std::string& where) const {
    // Products in f64 are off by (K + 2) 2^-53 times the sum of magnitudes, here 72 * 2^-53 * 1000
    // at most, 1e-11; relative to the product's size, which is 1/100 of that, 1e-12 at most.
    EXPECT_NEAR(got.max_abs, static_cast<double>(max_abs), 1e-11) << where;
    EXPECT_NEAR(got.relative_l2, static_cast<double>(std::sqrt(error2 / x2)), 1e-12) << where;
    EXPECT_NEAR(got.cosine, static_cast<double>(product / std::sqrt(x2 * y2)), 1e-12) << where;
  }
};

template <typename T>
long double dot(const Tensor& a, const Tensor& b, std::size_t row, std::size_t col) {
  const auto depth = static_cast<std::size_t>(a.shape()[1]);
  long double sum = 0;
  for (std::size_t k = 0; k < depth; ++k)
    sum += static_cast<long double>(a.span<T>()[row * depth + k]) *
           static_cast<long double>(b.span<T>()[col * depth + k]);
  return sum;
}

TEST(GemmError, EqualsAPlainLoop) {
  for (const char* name : {"fp8", "fp8-channel", "fp8-block", "mxfp8", "mxfp4", "nvfp4"}) {
    const Tensor a = random_values(150, 70, 1), b = random_values(40, 70, 2);
    const QuantizedTensor qa = quantize(a.view(), preset(name)),
                          qb = quantize(b.view(), preset(name));
    const Tensor da = dequantize(qa, DType::f64), db = dequantize(qb, DType::f64);
    const Tensor result = gemm(qa, qb, {.accumulator = Accumulator::f16});
    Plain quantization, accumulation, total;
    for (std::size_t i = 0; i < 150; ++i)
      for (std::size_t j = 0; j < 40; ++j) {
        const long double x = dot<float>(a, b, i, j), y = dot<double>(da, db, i, j),
                          z = static_cast<long double>(result.span<float>()[i * 40 + j]);
        quantization.add(x, y);
        accumulation.add(y, z);
        total.add(x, z);
      }
    const GemmError got = measure_gemm_error(a.view(), b.view(), qa, qb, result.view());
    EXPECT_EQ(got.elements, 150 * 40);
    EXPECT_EQ(got.not_finite, 0);
    quantization.expect(got.quantization, std::string(name) + ", quantization");
    accumulation.expect(got.accumulation, std::string(name) + ", accumulation");
    total.expect(got.total, std::string(name) + ", total");
  }
}

TEST(GemmError, NothingWrong) {
  const Tensor a = random_values(5, 8, 1), b = random_values(6, 8, 2);
  const Tensor exact = gemm(a, b, {.out = DType::f64, .accumulator = Accumulator::f64});
  const GemmError got = measure_gemm_error(a.view(), b.view(), a, b, exact.view());
  EXPECT_EQ(got, (GemmError{.elements = 30}));
  const Tensor zeros = Tensor::values({5, 8}, DType::f32);
  std::ranges::fill(zeros.bytes(), std::byte{0});
  const Tensor nothing = gemm(zeros, b);
  EXPECT_EQ(measure_gemm_error(zeros.view(), b.view(), zeros, b, nothing.view()),
            (GemmError{.elements = 30}));
  const Tensor empty = Tensor::values({0, 8}, DType::f32);
  EXPECT_EQ(measure_gemm_error(empty.view(), b.view(), empty, b, gemm(empty, b).view()),
            GemmError{});
  // Codes of values that they have exactly leave nothing to either part.
  const Tensor halves = Tensor::values({5, 8}, DType::f32);
  std::ranges::fill(halves.span<float>(), 0.5F);
  const QuantizedTensor q = quantize(halves.view(), preset("mxfp8"));
  EXPECT_EQ(measure_gemm_error(halves.view(), halves.view(), q, q, gemm(q, q).view()),
            (GemmError{.elements = 25}));
}

TEST(GemmError, WhatIsNotFiniteIsLeftOut) {
  const Tensor a = random_values(5, 32, 1), b = random_values(6, 32, 2);
  a.span<float>()[32 + 3] = std::nanf("");
  const QuantizedTensor qa = quantize(a.view(), preset("mxfp8")),
                        qb = quantize(b.view(), preset("mxfp8"));
  const Tensor result = gemm(qa, qb);
  result.span<float>()[0] = HUGE_VALF;
  const GemmError got = measure_gemm_error(a.view(), b.view(), qa, qb, result.view());
  EXPECT_EQ(got.not_finite, 7);
  EXPECT_TRUE(std::isfinite(got.total.relative_l2));
  EXPECT_LT(got.total.relative_l2, 0.1);
}

TEST(GemmError, WhatDoesNotFitIsNamed) {
  const Tensor a = random_values(5, 8, 1), b = random_values(6, 8, 2), c = random_values(6, 9, 3);
  const auto of = [](const Tensor& x, const Tensor& y, const Operand& p, const Operand& q,
                     const Shape& shape) -> std::string {
    try {
      (void)measure_gemm_error(x.view(), y.view(), p, q, Tensor::values(shape, DType::f32).view());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(of(a, b, a, c, {5, 6}),
            "[gemm_error] B has shape [6, 8] and what was multiplied in its place has [6, 9]");
  EXPECT_EQ(of(a, b, a, b, {6, 5}), "[gemm_error] the result has shape [6, 5]; expected [5, 6]");
  EXPECT_EQ(of(a, b, a, b, {1, 5, 6}),
            "[gemm_error] the result has shape [1, 5, 6]; expected two dimensions; measure the "
            "matrices of a batch one by one");
  EXPECT_EQ(of(a, c, a, c, {5, 6}).substr(0, 60),
            "[gemm] A has shape [5, 8] and B has shape [6, 9]: K is 8 in ");
}

}  // namespace
}  // namespace octavo
