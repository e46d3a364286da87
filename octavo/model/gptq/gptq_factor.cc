#include "octavo/model/gptq/gptq_factor_internal.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "octavo/base/error.h"
#include "octavo/base/thread_pool.h"
#include "octavo/model/gptq/cholesky_internal.h"

namespace octavo::gptq_detail {
namespace {

constexpr const char* kOp = "gptq";

void check_diagonal(const std::vector<double>& hessian, std::int64_t width, std::string_view what) {
  for (std::int64_t i = 0; i < width; ++i) {
    const double* const row = &hessian[static_cast<std::size_t>(i * width)];
    for (std::int64_t j = 0; j <= i; ++j)
      check(std::isfinite(row[j]), ErrorCode::invalid_argument, kOp, "the Hessian of ", what,
            " is ", row[j], " at (", i, ", ", j,
            "); expected finite numbers: what enters the layer is not finite, or was summed wrong");
    check(row[i] >= 0.0, ErrorCode::invalid_argument, kOp, "the Hessian of ", what, " has ", row[i],
          " on its diagonal, at ", i, "; expected E[x x^T], whose diagonal is not negative");
  }
}

std::vector<std::int64_t> by_activation(const std::vector<double>& hessian, std::int64_t width) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(width));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
    return hessian[static_cast<std::size_t>(a * width + a)] >
           hessian[static_cast<std::size_t>(b * width + b)];
  });
  return order;
}

}  // namespace

void check_gptq_options(const GptqOptions& options) {
  const std::string why = why_gptq_is_unavailable();
  check(why.empty(), ErrorCode::unsupported, kOp, why);
  check(options.damping >= 0.0 && options.damping <= 1e6, ErrorCode::invalid_argument, kOp,
        "got a damping of ", options.damping,
        "; expected a part of the mean diagonal, such as 0.05");
}

GptqFactor factor_hessian(std::vector<double> hessian, std::int64_t width,
                          const GptqOptions& options, std::string_view what) {
  check_gptq_options(options);
  check_diagonal(hessian, width, what);
  GptqFactor out{.width = width};
  if (options.order == ColumnOrder::activation) out.order = by_activation(hessian, width);
  double mean = 0.0;
  for (std::int64_t i = 0; i < width; ++i)
    mean += hessian[static_cast<std::size_t>(i * width + i)] / static_cast<double>(width);
  out.damping = mean > 0.0 ? options.damping * mean : 1.0;  // nothing came: each number by itself

  // H = R R^T with R upper triangular is the factorisation of H with its order turned around.
  const auto n = static_cast<std::size_t>(width);
  std::vector<double> turned(n * n);
  const auto column = [&](std::int64_t at) {
    return out.order.empty() ? at : out.order[static_cast<std::size_t>(at)];
  };
  parallel_for(static_cast<int>(width), options.threads, [&](int row) {
    const std::int64_t i = column(width - 1 - row);
    for (std::int64_t col = 0; col <= row; ++col) {
      const std::int64_t j = column(width - 1 - col);
      turned[static_cast<std::size_t>(row * width + col)] =
          hessian[static_cast<std::size_t>(std::max(i, j) * width + std::min(i, j))] +
          (i == j ? out.damping : 0.0);
    }
  });
  hessian = {};
  check(cholesky(turned, width, options.threads), ErrorCode::invalid_argument, kOp,
        "the Hessian of ", what, " is singular with a damping of ", options.damping,
        " of its mean diagonal; expected a positive definite one: give more text, or more damping");

  // M_ij = R_ij / R_jj, row j of `below` from the back of a column of `turned`.
  out.below = Tensor::values({width, width}, DType::f32);
  out.diagonal.resize(n);
  float* const below = out.below.span<float>().data();
  parallel_for(static_cast<int>(width), options.threads, [&](int j) {
    const auto col = static_cast<std::size_t>(width - 1 - j);
    const double pivot = turned[col * n + col];
    out.diagonal[static_cast<std::size_t>(j)] = pivot * pivot;
    float* const row = below + j * width;
    for (std::int64_t i = 0; i < width; ++i)
      row[i] = i < j ? static_cast<float>(
                           turned[static_cast<std::size_t>(width - 1 - i) * n + col] / pivot)
                     : 0.0F;
  });
  return out;
}

}  // namespace octavo::gptq_detail
