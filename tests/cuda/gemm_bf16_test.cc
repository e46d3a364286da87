// GEMM on the bf16 and f16 tensor cores with f32 accumulators: bf16 and f16 values, and codes that
// become such. Integers whose sums f32 holds have one exact result, whatever the order; other
// values are held to the bound of docs/numerics/gemm.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda/gemm_forced.h"
#include "tests/cuda/gemm_on_device.h"

namespace octavo::testing {
namespace {

// Every row, or of many rows those at tile edges and some between.
std::vector<std::int64_t> rows_to_look_at(std::int64_t rows) {
  std::vector<std::int64_t> chosen;
  for (std::int64_t row = 0; row < rows; ++row)
    if (rows <= 400 || row % 64 == 0 || row % 64 == 63 || row % 61 == 5 || row + 3 > rows)
      chosen.push_back(row);
  return chosen;
}

const Sizes kShapes[] = {{1, 1, 1},        {3, 5, 7},        {64, 64, 64},    {17, 300, 65},
                         {64, 192, 256},   {100, 70, 300},   {70, 100, 129},  {128, 200, 130},
                         {192, 256, 128},  {200, 300, 520},  {300, 200, 521}, {130, 385, 384},
                         {385, 130, 1000}, {257, 257, 2048}, {1, 2000, 999},  {33, 9000, 136},
                         {200, 17000, 72}, {17000, 200, 72}, {4300, 4100, 72}};

// Forced to octavo's kernels, also where cuBLASLt would be chosen.
class GemmBf16 : public support::CudaTest {
 private:
  const OwnKernels own_;
};

TEST_F(GemmBf16, IntegersAreExact) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Accumulator accumulator : {Accumulator::native, Accumulator::f32, Accumulator::f16})
      for (const Sizes& sizes : kShapes) {
        const std::vector<float> a = integers(sizes.m, sizes.k, 1),
                                 b = integers(sizes.n, sizes.k, 2);
        const Tensor x = to_device(values_as(a, {sizes.m, sizes.k}, dtype).view(), kThere),
                     w = to_device(values_as(b, {sizes.n, sizes.k}, dtype).view(), kThere);
        const Tensor got = to_host(gemm(x, w, {.accumulator = accumulator}).view());
        Wrong wrong;
        for (const std::int64_t row : rows_to_look_at(sizes.m))
          for (std::int64_t col = 0; col<sizes.n; col += sizes.n> 4000 ? 11 : 1) {
            const double value = oracle::number_at(got.view(), row, col),
                         wanted = sum_of(a, b, row, col, sizes.k);
            if (value != wanted) wrong.add(row, col, value, wanted);
          }
        EXPECT_EQ(wrong.report(), "")
            << dtype_name(dtype) << ", " << name_of(accumulator) << ", " << to_text(sizes);
      }
}

// Enough tiles that stream-K splits the last ones along K; epilogues with bias, activation,
// residual; 16-bit results by TMA store and by element stores. Sums here are integers below 2^8
// times a power of two, or rounded once.
TEST_F(GemmBf16, Epilogue) {
  for (const DType out : {DType::f32, DType::bf16, DType::f16})
    for (const Sizes& sizes : {Sizes{2500, 1700, 1100}, Sizes{64, 12000, 700}, Sizes{200, 264, 256},
                               Sizes{201, 263, 96}, Sizes{200, 17000, 72}})
      for (const int with : {0, 1, 2}) {
        const std::vector<float> a = integers(sizes.m, sizes.k, 3),
                                 b = integers(sizes.n, sizes.k, 4), bias = integers(1, sizes.n, 5),
                                 residual = integers(sizes.m, sizes.n, 6);
        const Tensor x = to_device(values_as(a, {sizes.m, sizes.k}, DType::bf16).view(), kThere),
                     w = to_device(values_as(b, {sizes.n, sizes.k}, DType::bf16).view(), kThere),
                     u = to_device(values_as(bias, {sizes.n}, DType::f32).view(), kThere),
                     v = to_device(values_as(residual, {sizes.m, sizes.n}, DType::bf16).view(),
                                   kThere);
        GemmOptions options{.out = out};
        if (with > 0) options.bias = u.view();
        if (with > 1) {
          options.activation = ActivationKind::relu;
          options.residual = v.view();
        }
        const Tensor got = to_host(gemm(x, w, options).view());
        Wrong wrong;
        for (const std::int64_t row : rows_to_look_at(sizes.m))
          for (std::int64_t col = 0; col<sizes.n; col += sizes.m> 1000 ? 7 : 1) {
            double sum = sum_of(a, b, row, col, sizes.k);
            if (with > 0) sum += static_cast<double>(bias[static_cast<std::size_t>(col)]);
            if (with > 1)
              sum = std::max(sum, 0.0) +
                    static_cast<double>(residual[static_cast<std::size_t>(row * sizes.n + col)]);
            const double value = oracle::number_at(got.view(), row, col);
            // The one rounding, to nearest: exact in f32.
            const double off = out == DType::f32 ? 0 : oracle::bound_rounded(sum, out);
            if (!(std::fabs(value - sum) <= off)) wrong.add(row, col, value, sum);
          }
        EXPECT_EQ(wrong.report(), "")
            << dtype_name(out) << ", " << to_text(sizes) << ", with " << with;
      }
}

// Values with any strides: those that TMA cannot read are copied first.
TEST_F(GemmBf16, StridesOfValues) {
  const std::int64_t m = 150, n = 170, k = 203;
  const std::vector<float> a = integers(m, k, 1), b = integers(n, k, 2);
  const Tensor straight = to_device(values_as(b, {n, k}, DType::bf16).view(), kThere);
  const auto check = [&](const View& view, const std::vector<float>& numbers, const char* name) {
    const Tensor got = to_host(gemm(view, straight).view());
    Wrong wrong;
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t col = 0; col < n; ++col) {
        const double value = oracle::number_at(got.view(), row, col),
                     wanted = sum_of(numbers, b, row, col, k);
        if (value != wanted) wrong.add(row, col, value, wanted);
      }
    EXPECT_EQ(wrong.report(), "") << name;
  };
  std::vector<float> transposed(a.size()), apart(static_cast<std::size_t>(m * 2 * (k + 1))),
      again(a.size());
  for (std::int64_t row = 0; row < m; ++row)
    for (std::int64_t col = 0; col < k; ++col) {
      const float x = a[static_cast<std::size_t>(row * k + col)];
      transposed[static_cast<std::size_t>(col * m + row)] = x;
      apart[static_cast<std::size_t>(row * 2 * (k + 1) + 2 * col + 1)] = x;
      again[static_cast<std::size_t>(row * k + col)] = a[static_cast<std::size_t>(col)];
    }
  const Tensor by_column = to_device(values_as(transposed, {k, m}, DType::bf16).view(), kThere),
               with_gaps =
                   to_device(values_as(apart, {m, 2 * (k + 1)}, DType::bf16).view(), kThere),
               plain = to_device(values_as(a, {m, k}, DType::bf16).view(), kThere);
  View view = by_column.view();
  view.shape = {m, k};
  view.strides = {2, 2 * m};
  check(view, a, "transposed");
  view = with_gaps.view();
  view.data = static_cast<std::byte*>(view.data) + 2;
  view.shape = {m, k};
  view.strides = {4 * (k + 1), 4};
  check(view, a, "every second column");
  view = plain.view();
  view.strides[0] = 0;
  check(view, again, "one row again and again");
  check(plain.view(), a, "rows of an odd number of values");
}

// Every scaling that 16 bits can hold, in products larger than those of tests/gemm.
TEST_F(GemmBf16, CodesWithinTheBoundOfF32) {
  struct Pair {
    OperandKind a, b;
  };
  const OperandKind narrow = changed("fp8", "tile_1x64", [](Scaling& s) { s.tile = {1, 64}; });
  const Pair pairs[] = {{quantized_as("fp8"), quantized_as("fp8")},
                        {quantized_as("fp8-channel"), quantized_as("fp8:e5m2")},
                        {quantized_as("fp8-1x128"), quantized_as("fp8-block")},
                        {quantized_as("fp8-block"), quantized_as("fp8-1x128")},
                        {quantized_as("fp8-1x128"), quantized_as("fp8-1x128")},
                        {narrow, narrow},
                        {narrow, quantized_as("fp8-block")},
                        {quantized_as("mxfp8"), quantized_as("mxfp4")},
                        {quantized_as("mxfp6"), quantized_as("mxint8")},
                        {quantized_as("nvfp4"), quantized_as("nvfp4")},
                        {quantized_as("nvfp4"), quantized_as("fp8-block")},
                        {valued_as(DType::bf16), quantized_as("nvfp4")},
                        {valued_as(DType::bf16), quantized_as("mxfp4")},
                        {valued_as(DType::bf16), quantized_as("fp8-block")},
                        {valued_as(DType::f16), quantized_as("nvfp4")},
                        {valued_as(DType::f16), quantized_as("fp8-channel")},
                        {valued_as(DType::f16), quantized_as("fp8-block")}};
  for (const Pair& pair : pairs)
    for (const Sizes& sizes : {Sizes{200, 300, 520}, Sizes{300, 200, 321}, Sizes{40, 300, 256},
                               Sizes{300, 100, 136}, Sizes{140, 129, 1000}}) {
      const MadeOperand a = made(pair.a, usual_values(sizes.m, sizes.k, 1), sizes.m, sizes.k),
                        b = made(pair.b, usual_values(sizes.n, sizes.k, 2), sizes.n, sizes.k);
      const QuantizedTensor qa =
                                a.is_quantized ? to_device(a.quantized, kThere) : QuantizedTensor{},
                            qb =
                                b.is_quantized ? to_device(b.quantized, kThere) : QuantizedTensor{};
      const Tensor va = a.is_quantized ? Tensor{} : to_device(a.values.view(), kThere),
                   vb = b.is_quantized ? Tensor{} : to_device(b.values.view(), kThere);
      const Operand x = a.is_quantized ? Operand(qa) : Operand(va),
                    w = b.is_quantized ? Operand(qb) : Operand(vb);
      const std::string where = text(pair.a.name, " by ", pair.b.name, ", ", to_text(sizes));
      expect_product(to_host(gemm(x, w, {.accumulator = Accumulator::f32}).view()), a.numbers,
                     b.numbers, Accumulator::f32, where);
      if (HasFailure()) return;
    }
}

// A sum has one order, so a row has the bits that it has by itself, whatever its tile.
TEST_F(GemmBf16, LargeOnesHaveTheBitsOfSmallOnes) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Sizes& sizes : {Sizes{2500, 1700, 1100}, Sizes{64, 12000, 700},
                               Sizes{128, 9000, 700}, Sizes{1700, 2560, 1024}}) {
      const Tensor
          x = to_device(
              values_as(usual_values(sizes.m, sizes.k, 1), {sizes.m, sizes.k}, dtype).view(),
              kThere),
          w = to_device(
              values_as(usual_values(sizes.n, sizes.k, 2), {sizes.n, sizes.k}, dtype).view(),
              kThere);
      const Tensor whole = to_host(gemm(x, w).view());
      for (const std::int64_t first : {std::int64_t{0}, sizes.m / 2, sizes.m - 3}) {
        View rows = x.view();
        rows.data = static_cast<std::byte*>(rows.data) + first * rows.strides[0];
        rows.shape[0] = 3;
        const Tensor part = to_host(gemm(rows, w).view());
        Wrong wrong;
        for_each_element(part, [&](std::int64_t row, std::int64_t col, double value) {
          const double other = oracle::number_at(whole.view(), first + row, col);
          if (value != other) wrong.add(first + row, col, other, value);
        });
        EXPECT_EQ(wrong.report(), "") << dtype_name(dtype) << ", " << to_text(sizes);
      }
    }
}

// One and fifteen small products: with 25 fraction bits 2^-25 is kept and their sum is truncated to
// 23, so 3.75 units of 2^-23 are 3; what is below 2^-25 is lost. The bound of docs/numerics/gemm.md
// is derived from this.
TEST_F(GemmBf16, TensorCoresKeep25FractionBits) {
  for (const auto& [small, wanted] :
       {std::pair{0x1p-24F, 1.0 + 7 * 0x1p-23}, {0x1p-25F, 1.0 + 3 * 0x1p-23}, {0x1p-26F, 1.0}}) {
    std::vector<float> a(64 * 16, small), b(64 * 16, 1.0F);
    for (std::size_t row = 0; row < 64; ++row) a[row * 16 + row % 16] = 1.0F;
    const Tensor got = to_host(gemm(to_device(values_as(a, {64, 16}, DType::bf16).view(), kThere),
                                    to_device(values_as(b, {64, 16}, DType::bf16).view(), kThere))
                                   .view());
    Wrong wrong;
    for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
      if (value != wanted) wrong.add(row, col, (value - 1) * 0x1p23, (wanted - 1) * 0x1p23);
    });
    EXPECT_EQ(wrong.report(), "") << small << " (in units of 2^-23 above 1)";
  }
}

// Products of one sign, where truncation errors add up: 10.5 u of the partial sum for each of K /
// 16 instructions (docs/numerics/gemm.md), and partial sums are half of the last one in the mean.
// 7.4e-5 was measured at this K.
TEST_F(GemmBf16, LongSumsOfOneSign) {
  const std::int64_t m = 130, n = 140, k = 16384;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(0.0F, 1.0F);
  const auto positive = [&](std::int64_t rows) {
    std::vector<float> values(static_cast<std::size_t>(rows * k));
    for (float& x : values) x = uniform(random);
    return values_as(values, {rows, k}, DType::bf16);
  };
  const Tensor a = positive(m), b = positive(n);
  const oracle::Numbers x = oracle::numbers_of(a.view()), y = oracle::numbers_of(b.view());
  const Tensor got = to_host(gemm(to_device(a.view(), kThere), to_device(b.view(), kThere)).view());
  double most = 0;
  for (std::int64_t row = 0; row < m; row += 13)
    for (std::int64_t col = 0; col < n; ++col) {
      const double exact = oracle::element_of(x, y, row, col).sum;
      most = std::max(most, std::fabs(oracle::number_at(got.view(), row, col) - exact) / exact);
    }
  EXPECT_LT(most, 10.5 * 0x1p-24 * static_cast<double>(k) / 16 / 2);
  RecordProperty("largest_relative_error", std::to_string(most));
}

// f16 sums would overflow: 448 * 448 * 128 is far above 65504.
TEST_F(GemmBf16, F16SumsDoNotOverflow) {
  for (const char* name : {"fp8", "mxfp8", "fp8-1x128"}) {
    const std::vector<float> ones(200 * 512, 1.0F);
    const QuantizedTensor a =
        to_device(quantize(values_as(ones, {200, 512}, DType::f32).view(), preset(name)), kThere);
    const Tensor got = to_host(gemm(a, a, {.accumulator = Accumulator::f16}).view());
    Wrong wrong;
    for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
      if (!(std::fabs(value - 512.0) < 0.5)) wrong.add(row, col, value, 512.0);
    });
    EXPECT_EQ(wrong.report(), "") << name;
  }
}

// What no tensor core takes is computed by the general kernel, slowly, and logged.
TEST_F(GemmBf16, SaysWhenItIsSlow) {
  std::vector<std::string> notes;
  Log log([&](std::string_view note) { notes.emplace_back(note); });
  const QuantizedTensor weights = to_device(
      quantize(values_as(usual_values(8, 64, 1), {8, 64}, DType::bf16).view(), preset("mxfp8")),
      kThere);
  for (const DType dtype : {DType::bf16, DType::f16, DType::f16}) {
    const Tensor x = to_device(values_as(usual_values(3, 64, 2), {3, 64}, dtype).view(), kThere);
    (void)gemm(x.view(), weights, {.log = &log});
  }
  ASSERT_EQ(notes.size(), 1);
  EXPECT_NE(notes[0].find("float16 by e4m3fn with scales for 1 x 32"), std::string::npos)
      << notes[0];
}

}  // namespace
}  // namespace octavo::testing
