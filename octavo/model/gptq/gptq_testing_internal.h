// GPTQ as its paper has it: the inverse of the damped Hessian, its upper Cholesky factor, and one
// column after the other, in plain f64 loops that share no code with the library.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "octavo/tensor/tensor.h"

namespace octavo::gptq_detail::testing {

using Matrix64 = std::vector<std::vector<double>>;

// Rows of correlated numbers: each is a mix of its neighbours, of very different sizes.
inline Tensor correlated_rows(std::int64_t rows, std::int64_t width, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor out = Tensor::values({rows, width}, DType::f32);
  float* at = out.span<float>().data();
  for (std::int64_t row = 0; row < rows; ++row) {
    float before = 0.0F;
    const float common = normal(random);
    for (std::int64_t i = 0; i < width; ++i) {
      before = 0.8F * before + normal(random) + 0.5F * common;
      *at++ = before * (i % 7 == 0 ? 4.0F : 0.5F);
    }
  }
  return out;
}

inline Tensor normal_values(std::int64_t rows, std::int64_t width, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.05F);
  Tensor out = Tensor::values({rows, width}, DType::f32);
  for (float& value : out.span<float>()) value = normal(random);
  return out;
}

inline Matrix64 moments(const Tensor& x) {
  const auto rows = static_cast<std::size_t>(x.shape()[0]),
             n = static_cast<std::size_t>(x.shape()[1]);
  const auto values = x.span<float>();
  Matrix64 h(n, std::vector<double>(n));
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j)
        h[i][j] += static_cast<double>(values[row * n + i]) *
                   static_cast<double>(values[row * n + j]) / static_cast<double>(rows);
  return h;
}

inline Tensor as_tensor(const Matrix64& matrix) {
  const auto n = static_cast<std::int64_t>(matrix.size());
  Tensor out = Tensor::values({n, n}, DType::f64);
  double* at = out.span<double>().data();
  for (const auto& row : matrix)
    for (const double value : row) *at++ = value;
  return out;
}

// By Gauss and Jordan, with pivots.
inline Matrix64 inverse(Matrix64 a) {
  const std::size_t n = a.size();
  Matrix64 out(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) out[i][i] = 1.0;
  for (std::size_t col = 0; col < n; ++col) {
    std::size_t pivot = col;
    for (std::size_t row = col; row < n; ++row)
      if (std::fabs(a[row][col]) > std::fabs(a[pivot][col])) pivot = row;
    std::swap(a[col], a[pivot]);
    std::swap(out[col], out[pivot]);
    const double by = 1.0 / a[col][col];
    for (std::size_t j = 0; j < n; ++j) {
      a[col][j] *= by;
      out[col][j] *= by;
    }
    for (std::size_t row = 0; row < n; ++row) {
      if (row == col || a[row][col] == 0.0) continue;
      const double times = a[row][col];
      for (std::size_t j = 0; j < n; ++j) {
        a[row][j] -= times * a[col][j];
        out[row][j] -= times * out[col][j];
      }
    }
  }
  return out;
}

// U of A = U^T U.
inline Matrix64 upper_factor(const Matrix64& a) {
  const std::size_t n = a.size();
  Matrix64 u(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i; j < n; ++j) {
      double sum = a[i][j];
      for (std::size_t k = 0; k < i; ++k) sum -= u[k][i] * u[k][j];
      u[i][j] = i == j ? std::sqrt(sum) : sum / u[i][i];
    }
  return u;
}

// `round` is the value that a number of a column becomes in a row. Columns in the given order.
inline Matrix64 textbook_gptq(
    const Tensor& weight, const Matrix64& hessian, double damping,
    const std::vector<std::size_t>& order,
    const std::function<double(std::size_t row, std::size_t col, double number)>& round) {
  const auto rows = static_cast<std::size_t>(weight.shape()[0]), n = hessian.size();
  double mean = 0;
  for (std::size_t i = 0; i < n; ++i) mean += hessian[i][i] / static_cast<double>(n);
  Matrix64 h(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      h[i][j] = hessian[order[i]][order[j]] + (i == j ? damping * mean : 0.0);
  const Matrix64 u = upper_factor(inverse(h));
  Matrix64 out(rows, std::vector<double>(n));
  const auto values = weight.span<float>();
  for (std::size_t row = 0; row < rows; ++row) {
    std::vector<double> w(n);
    for (std::size_t i = 0; i < n; ++i) w[i] = static_cast<double>(values[row * n + order[i]]);
    for (std::size_t i = 0; i < n; ++i) {
      const double q = round(row, order[i], w[i]);
      out[row][order[i]] = q;
      const double error = (w[i] - q) / u[i][i];
      for (std::size_t j = i; j < n; ++j) w[j] -= error * u[i][j];
    }
  }
  return out;
}

// tr(D H D^T) / tr(W H W^T).
inline double relative_error(const Tensor& weight, const Tensor& quantized, const Matrix64& h) {
  const auto rows = static_cast<std::size_t>(weight.shape()[0]), n = h.size();
  const auto w = weight.span<float>(), q = quantized.span<float>();
  double error = 0, whole = 0;
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        const auto a = static_cast<double>(w[row * n + i]), b = static_cast<double>(w[row * n + j]);
        const double da = a - static_cast<double>(q[row * n + i]),
                     db = b - static_cast<double>(q[row * n + j]);
        error += da * h[i][j] * db;
        whole += a * h[i][j] * b;
      }
  return error / whole;
}

}  // namespace octavo::gptq_detail::testing
