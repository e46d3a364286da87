// Sums of columns on every backend that has them: the reference's bytes, through the kernel table,
// for any type, strides and number of rows; and what the reference itself adds up.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "octavo/octavo.h"
#include "tests/agreement/quantize_cases.h"
#include "tests/support/every_backend.h"

namespace octavo::testing {
namespace {

// [rows, cols] in one of several memory layouts.
enum class Lie { dense, transposed, with_gaps, one_row_again_and_again };

Matrix lying(const Tensor& memory, std::int64_t rows, std::int64_t cols, Lie lie) {
  const View& view = memory.view();
  const std::int64_t bytes = element_bytes(view.dtype, view.format);
  Matrix matrix{.data = view.data, .dtype = view.dtype, .rows = rows, .cols = cols};
  matrix.row_pitch = cols * bytes;
  matrix.col_stride = bytes;
  if (lie == Lie::transposed) {
    matrix.row_pitch = bytes;
    matrix.col_stride = rows * bytes;
  } else if (lie == Lie::with_gaps) {
    matrix.row_pitch = 2 * cols * bytes;
    matrix.col_stride = 2 * bytes;
  } else if (lie == Lie::one_row_again_and_again) {
    matrix.row_pitch = 0;
  }
  return matrix;
}

Tensor numbers(std::int64_t count, DType dtype, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.5F, 1.0F);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values_as(values, {count}, dtype);
}

TEST(ColumnSumsAgreement, EveryBackend) {
  struct Size {
    std::int64_t rows, cols;
  };
  const Size sizes[] = {{0, 5},    {1, 1},    {3, 40},   {63, 7},  {64, 33},
                        {65, 300}, {129, 70}, {4096, 9}, {4097, 5}};
  for (const BackendInfo& backend : support::every_backend()) {
    if (backend.kernels->column_sums == nullptr) continue;
    for (const auto [rows, cols] : sizes)
      for (const DType in : {DType::f32, DType::bf16, DType::f16, DType::f64})
        for (const DType out : {DType::f32, DType::bf16, DType::f16, DType::f64})
          for (const Lie lie :
               {Lie::dense, Lie::transposed, Lie::with_gaps, Lie::one_row_again_and_again}) {
            const Tensor memory = numbers(2 * std::max<std::int64_t>(rows, 1) * cols, in, 1),
                         before = numbers(cols, DType::f32, 2), got = Tensor::values({cols}, out),
                         wanted = Tensor::values({cols}, out);
            const Matrix values = lying(memory, rows, cols, lie);
            for (const Matrix& added : {Matrix{}, lying(before, 1, cols, Lie::dense)}) {
              backend.kernels->column_sums({}, values, added, lying(got, 1, cols, Lie::dense));
              reference_backend().column_sums({}, values, added,
                                              lying(wanted, 1, cols, Lie::dense));
              ASSERT_TRUE(std::ranges::equal(got.bytes(), wanted.bytes()))
                  << backend.name << ": " << rows << " x " << cols << ", " << dtype_name(in)
                  << " to " << dtype_name(out) << ", lie " << static_cast<int>(lie);
            }
          }
  }
}

// Sums of 64 one after the other, then those.
TEST(ColumnSumsAgreement, TheOrderOfTheReference) {
  const std::int64_t rows = 64 * 64 + 70, cols = 3;
  const Tensor memory = numbers(rows * cols, DType::f32, 3),
               sums = Tensor::values({cols}, DType::f32);
  reference_backend().column_sums({}, lying(memory, rows, cols, Lie::dense), {},
                                  lying(sums, 1, cols, Lie::dense));
  const auto in_runs = [](const std::vector<float>& from) {
    std::vector<float> to;
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (i % 64 == 0) to.push_back(0.0F);
      to.back() += from[i];
    }
    return to;
  };
  for (std::int64_t col = 0; col < cols; ++col) {
    std::vector<float> column;
    for (std::int64_t row = 0; row < rows; ++row)
      column.push_back(memory.span<float>()[static_cast<std::size_t>(row * cols + col)]);
    const std::vector<float> last = in_runs(in_runs(in_runs(column)));
    ASSERT_EQ(last.size(), 1U);
    EXPECT_EQ(sums.span<float>()[static_cast<std::size_t>(col)], last[0]);
  }
}

// Up to 64 rows it is what a product with ones gives.
TEST(ColumnSumsAgreement, SmallMIsAProductWithOnes) {
  const std::int64_t rows = 64, cols = 33;
  const Tensor memory = numbers(rows * cols, DType::bf16, 4),
               ones = Tensor::values({1, rows}, DType::f32),
               sums = Tensor::values({cols}, DType::bf16);
  std::ranges::fill(ones.span<float>(), 1.0F);
  View transposed = memory.view();
  transposed.shape = {cols, rows};
  transposed.strides = {2, 2 * cols};
  reference_backend().column_sums({}, lying(memory, rows, cols, Lie::dense), {},
                                  lying(sums, 1, cols, Lie::dense));
  const Tensor wanted =
      gemm(ones, transposed, {.out = DType::bf16, .backend = &reference_backend()});
  EXPECT_TRUE(std::ranges::equal(sums.bytes(), wanted.bytes()));
}

}  // namespace
}  // namespace octavo::testing
