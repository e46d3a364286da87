// Grouped GEMM, many products in one launch: the bytes of one launch per product. Sums have one
// order whatever the split, so both are bit-identical.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "octavo/octavo.h"
#include "tests/cuda/gemm_forced.h"
#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

constexpr Device kThere{DeviceKind::cuda, 0};

// Forces octavo's order of sums: cuBLASLt may be chosen for a single product.
class GemmGroupedOnDevice : public support::CudaTest {
 private:
  const OwnKernels own_;
};

struct Case {
  std::vector<std::int64_t> rows;
  std::int64_t n, k;
};

Tensor there(std::int64_t rows, std::int64_t cols, Shape shape, unsigned seed) {
  return to_device(values_as(usual_values(rows, cols, seed), shape, DType::bf16).view(), kThere);
}

View matrix_of(const Tensor& stack, std::int64_t i) {
  View view = stack.view();
  view.data = static_cast<std::byte*>(view.data) + i * view.strides[0];
  view.shape = {view.shape[1], view.shape[2]};
  view.strides = {view.strides[1], view.strides[2]};
  return view;
}

View rows_of(const Tensor& matrix, std::int64_t first, std::int64_t count) {
  View view = matrix.view();
  view.data = static_cast<std::byte*>(view.data) + first * view.strides[0];
  view.shape = {count, view.shape[1]};
  return view;
}

// Where they differ, by rows of the result.
std::string difference(const View& got, const View& wanted) {
  const Tensor a = to_host(got), b = to_host(wanted);
  const auto x = a.bytes(), y = b.bytes();
  if (x.size() != y.size()) return "another size";
  const std::size_t row = x.size() / static_cast<std::size_t>(got.shape[0]);
  std::size_t wrong = 0, first = x.size(), last = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] != y[i]) ++wrong, first = std::min(first, i), last = i;
  return wrong == 0 ? ""
                    : text(wrong, " bytes wrong, in rows ", first / row, " to ", last / row,
                           ", first byte ", first % row, " of a row");
}

void expect_each(const Case& sizes, const char* name, DType out, bool finish) {
  const auto groups = static_cast<std::int64_t>(sizes.rows.size());
  std::int64_t all = 0;
  for (const std::int64_t count : sizes.rows) all += count;
  const Tensor x = there(all, sizes.k, {all, sizes.k}, 1),
               w = there(groups * sizes.n, sizes.k, {groups, sizes.n, sizes.k}, 2),
               bias = there(1, sizes.n, {sizes.n}, 3),
               residual = there(all, sizes.n, {all, sizes.n}, 4);
  const bool is_values = std::string(name) == "bf16";
  const auto operand = [&](const View& values) {
    return is_values ? QuantizedTensor{} : quantize(values, preset(name));
  };
  GemmOptions options{.out = out};
  if (finish) {
    options.bias = bias.view();
    options.activation = ActivationKind::relu;
    options.residual = residual.view();
  }
  const QuantizedTensor a = operand(x.view()), b = operand(w.view());
  const Tensor got = is_values ? gemm_grouped(x.view(), w.view(), sizes.rows, options)
                               : gemm_grouped(a, b, sizes.rows, options);
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < groups; ++i) {
    const std::int64_t count = sizes.rows[static_cast<std::size_t>(i)];
    if (count == 0) continue;
    const View its_rows = rows_of(x, first, count), its_weights = matrix_of(w, i);
    GemmOptions its = options;
    if (finish) its.residual = rows_of(residual, first, count);
    const QuantizedTensor qa = operand(its_rows), qb = operand(its_weights);
    const Tensor wanted = is_values ? gemm(its_rows, its_weights, its) : gemm(qa, qb, its);
    EXPECT_EQ(difference(rows_of(got, first, count), wanted.view()), "")
        << name << ", group " << i << ": rows " << first << " to " << first + count << ", N "
        << sizes.n << ", K " << sizes.k;
    first += count;
  }
}

const Case kCases[] = {
    {{3, 0, 1, 17, 64, 5}, 136, 256},              // small M: the weights are split
    {{200, 1, 0, 333, 64, 130}, 264, 384},         // tiles that reach into other groups
    {{70, 90, 110}, 7168, 256},                    // between
    {{1021, 3, 515, 0, 0, 777}, 1024, 640},        // many tiles, stream-K
    {std::vector<std::int64_t>(150, 9), 64, 128},  // more groups than kernel arguments hold
};

TEST_F(GemmGroupedOnDevice, IsALaunchForEachGroup) {
  for (const Case& sizes : kCases)
    for (const char* name : {"fp8-channel", "fp8-1x128", "mxfp8", "bf16"})
      for (const DType out : {DType::bf16, DType::f32})
        expect_each(sizes, name, out, out == DType::f32);
}

TEST_F(GemmGroupedOnDevice, TakesSquaresOfScales) {
  expect_each({{128, 0, 384, 256}, 256, 512}, "fp8-block", DType::bf16, false);
}

// Weights with gaps between them are multiplied one by one. The order of sums is the same, also
// where cuBLASLt would be chosen for a single product.
TEST_F(GemmGroupedOnDevice, GapsBetweenWeightsChangeNoBit) {
  const ForcedLibrary forced(true);
  const std::vector<std::int64_t> rows{70, 0, 130, 9};
  const std::int64_t n = 264, k = 512, groups = 4, all = 209;
  const Tensor x = there(all, k, {all, k}, 1), w = there(groups * 2 * n, k, {groups, 2 * n, k}, 2);
  View gaps = w.view();
  gaps.shape = {groups, n, k};
  std::vector<float> dense;
  const std::vector<float> values = usual_values(groups * 2 * n, k, 2);
  for (std::int64_t i = 0; i < groups; ++i)
    dense.insert(dense.end(), values.begin() + i * 2 * n * k, values.begin() + (i * 2 + 1) * n * k);
  const Tensor without = to_device(values_as(dense, {groups, n, k}, DType::bf16).view(), kThere);
  const GemmOptions options{.out = DType::bf16};
  EXPECT_EQ(difference(gemm_grouped(x.view(), gaps, rows, options).view(),
                       gemm_grouped(x.view(), without.view(), rows, options).view()),
            "");
}

TEST_F(GemmGroupedOnDevice, ABatchIsOneLaunchToo) {
  const std::int64_t count = 5, m = 70, n = 200, k = 256;
  const Tensor x = there(count * m, k, {count, m, k}, 1), w = there(count * n, k, {count, n, k}, 2);
  for (const char* name : {"fp8-channel", "mxfp8"}) {
    const Scaling scaling = preset(name);
    const QuantizedTensor a = quantize(x.view(), scaling), b = quantize(w.view(), scaling),
                          one_group = quantize(matrix_of(x, 0), scaling);
    const GemmOptions options{.out = DType::bf16};
    const Tensor both = gemm(a, b, options), repeated = gemm(one_group, b, options);
    for (std::int64_t i = 0; i < count; ++i) {
      const QuantizedTensor its = quantize(matrix_of(x, i), scaling),
                            weights = quantize(matrix_of(w, i), scaling);
      EXPECT_EQ(difference(matrix_of(both, i), gemm(its, weights, options).view()), "")
          << name << ", matrix " << i;
      EXPECT_EQ(difference(matrix_of(repeated, i), gemm(one_group, weights, options).view()), "")
          << name << ", the same A by matrix " << i;
    }
  }
}

}  // namespace
}  // namespace octavo::testing
