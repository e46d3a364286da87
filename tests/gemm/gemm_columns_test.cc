// Column-major operands, as [K, N] weights and sums over rows have them: within the bound of
// docs/numerics/gemm.md of sums in f64, and the same for any number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/agreement/quantize_cases.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {
namespace {

struct Dense {
  std::vector<double> values;
  Tensor tensor;
};

// Values of a dtype, as they are there and as f64.
Dense made(const Shape& shape, DType dtype, unsigned seed) {
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i)  // few bits: exact in every dtype
    values[i] =
        static_cast<float>(static_cast<int>((i * 37 + seed * 11 + i * i % 13) % 255) - 127) / 64.0F;
  Tensor tensor = values_as(values, shape, dtype == DType::f64 ? DType::f32 : dtype);
  if (dtype == DType::f64) {
    tensor = Tensor::values(shape, DType::f64);
    for (std::size_t i = 0; i < values.size(); ++i)
      tensor.span<double>()[i] = static_cast<double>(values[i]);
  }
  return {{values.begin(), values.end()}, tensor};
}

View transposed(View view) {
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return view;
}

void expect_bound(std::int64_t m, std::int64_t n, std::int64_t depth, DType dtype,
                  bool transpose_a) {
  const Dense a = transpose_a ? made({depth, m}, dtype, 1) : made({m, depth}, DType::f32, 1);
  const Dense b = made({depth, n}, dtype, 2);
  const View a_view = transpose_a ? transposed(a.tensor.view()) : a.tensor.view();
  for (const BackendInfo& backend : support::every_backend()) {
    const std::string where = text(backend.name, ", ", m, " x ", n, " x ", depth, " of ",
                                   dtype_name(dtype), transpose_a ? ", both" : "");
    const GemmOptions options{.threads = 1, .backend = backend.kernels};
    const Tensor got = gemm(a_view, transposed(b.tensor.view()), options);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (std::int64_t k = 0; k < depth; ++k) {
          const double product =
              a.values[static_cast<std::size_t>(transpose_a ? k * m + i : i * depth + k)] *
              b.values[static_cast<std::size_t>(k * n + j)];
          sum += product;
          size += std::fabs(product);
        }
        const double bound =
            (static_cast<double>(depth) + 8) * 0x1p-24 * size + 0x1p-24 * std::fabs(sum);
        ASSERT_LE(
            std::fabs(static_cast<double>(got.span<float>()[static_cast<std::size_t>(i * n + j)]) -
                      sum),
            bound)
            << where << ", at " << i << ", " << j;
      }
    }
    if (support::is_staged(backend)) continue;
    const Tensor again =
        gemm(a_view, transposed(b.tensor.view()), {.threads = 3, .backend = backend.kernels});
    EXPECT_EQ(
        std::memcmp(again.view().data, got.view().data, static_cast<std::size_t>(got.nbytes())), 0)
        << where;
  }
}

TEST(GemmColumns, SmallM) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const std::int64_t rows : {1, 3, 16})
      for (const std::int64_t depth : {1, 6, 67}) expect_bound(rows, 300, depth, dtype, false);
  expect_bound(2, 40, 2100, DType::f32, false);  // more than one K block (kc)
}

TEST(GemmColumns, ManyRows) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    for (const std::int64_t depth : {1, 6, 67}) {
      expect_bound(33, 37, depth, dtype, false);
      expect_bound(33, 37, depth, dtype, true);
    }
  expect_bound(18, 25, 600, DType::f32, true);
}

// A bias gradient: ones (a single element, stride 0) times columns.
TEST(GemmColumns, SumsOfColumns) {
  const Dense dy = made({70, 515}, DType::f32, 3);
  const float one = 1.0F;
  View ones = value_view(const_cast<float*>(&one), DType::f32, {1, 70});
  ones.strides = {0, 0};
  for (const BackendInfo& backend : support::every_backend()) {
    const Tensor got = gemm(ones, transposed(dy.tensor.view()), {.backend = backend.kernels});
    for (std::size_t j = 0; j < 515; ++j) {
      double sum = 0;  // of few bits: exact in f32
      for (std::size_t i = 0; i < 70; ++i) sum += dy.values[i * 515 + j];
      EXPECT_EQ(static_cast<double>(got.span<float>()[j]), sum) << backend.name << ", " << j;
    }
  }
}

}  // namespace
}  // namespace octavo::testing
