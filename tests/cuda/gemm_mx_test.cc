// GEMM of MX operands on a device, in each of the three align modes: exponents aligned by row,
// aligned by 128 columns, and unaligned where alignment loses too much. The expected mode is
// computed here in f64, from codes and scales.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/gemm_on_device.h"

namespace octavo::testing {
namespace {

// An MX operand with aligned exponents: the largest of each row, or of every 128 columns.
struct AlignedOperand {
  QuantizedTensor tensor;
  int spread = 0;  // of exponents in a row; the smallest possible one, that of zeros, is ignored
  std::int64_t changed = 0;
  bool loses_too_much = false;
};

// Where values of a block change, its largest must not become smaller: exponent_alignment.h.
double least_largest(const Format& format) { return format == e4m3fn ? 0x1p-4 : 0x1p-12; }

AlignedOperand aligned(const QuantizedTensor& mx, bool by_row) {
  const std::int64_t rows = mx.shape[0], cols = mx.shape[1], blocks = (cols + 31) / 32;
  AlignedOperand made{usual_operand(
      scaling_of(by_row ? "fp8-channel" : "fp8-1x128", mx.scaling.format), rows, cols, 1)};
  const auto exponent = [&](std::int64_t row, std::int64_t block) {
    return std::ilogb(oracle::number_at(mx.rowwise.scales.view(), row, block));
  };
  const View scales = made.tensor.rowwise.scales.view(), codes = made.tensor.rowwise.codes.view(),
             from = mx.rowwise.codes.view();
  const int mantissa = mx.scaling.format == e4m3fn ? 3 : 2,
            lowest = mx.scaling.format == e4m3fn ? -9 : -16;
  for (std::int64_t row = 0; row < rows; ++row) {
    int top = -1000, bottom = 1000;
    for (std::int64_t block = 0; block < blocks; ++block) {
      top = std::max(top, exponent(row, block));
      if (exponent(row, block) > -127) bottom = std::min(bottom, exponent(row, block));
    }
    made.spread = std::max(made.spread, top - std::min(top, bottom));
    double largest = 0;  // of the block, so far
    bool loses = false;
    for (std::int64_t col = 0; col < cols; ++col) {
      int target = top;
      if (!by_row) {
        target = -1000;
        for (std::int64_t block = col / 128 * 4; block < std::min(blocks, col / 128 * 4 + 4);
             ++block)
          target = std::max(target, exponent(row, block));
      }
      const std::int64_t scale_at = by_row ? 0 : col / 128;
      *reinterpret_cast<float*>(static_cast<std::byte*>(scales.data) + row * scales.strides[0] +
                                scale_at * scales.strides[1]) = std::ldexp(1.0F, target);
      const double value =
          std::ldexp(oracle::number_at(from, row, col), exponent(row, col / 32) - target);
      const double unit =
          std::ldexp(1.0, std::max(value == 0 ? lowest : std::ilogb(value) - mantissa, lowest));
      const double rounded = std::nearbyint(value / unit) * unit;
      made.changed += rounded != value;
      if (col % 32 == 0) largest = 0, loses = false;
      largest = std::max(largest, std::fabs(rounded));
      loses |= rounded != value;
      if (col % 32 == 31 || col == cols - 1)
        made.loses_too_much |= loses && largest < least_largest(mx.scaling.format);
      const std::uint32_t code = encode_value(mx.scaling.format, std::fabs(rounded), {}).code;
      static_cast<std::byte*>(codes.data)[row * cols + col] =
          static_cast<std::byte>(code | (std::signbit(value) ? 0x80u : 0u));
    }
  }
  return made;
}

enum class Way { by_row, by_columns, as_they_are };

Way way_of(const QuantizedTensor& a, const QuantizedTensor& b) {
  if (std::max(aligned(a, true).spread, aligned(b, true).spread) <= 8) return Way::by_row;
  return aligned(a, false).loses_too_much || aligned(b, false).loses_too_much ? Way::as_they_are
                                                                              : Way::by_columns;
}

// A product on the device, and the number of elements that it reports as changed by alignment.
struct Product {
  Tensor result;
  std::int64_t changed = 0;
};

Product product_of(const QuantizedTensor& a, const QuantizedTensor& b, GemmOptions options = {}) {
  Product made;
  options.aligned = &made.changed;
  made.result = to_host(gemm(to_device(a, kThere), to_device(b, kThere), options).view());
  return made;
}

// Against the unaligned operands.
void expect_exact(const QuantizedTensor& a, const QuantizedTensor& b, const std::string& where) {
  const Product got = product_of(a, b);
  EXPECT_EQ(got.changed, 0) << where;
  expect_product(got.result, oracle::numbers_of(a), oracle::numbers_of(b), Accumulator::f32, where);
}

// In whichever mode it takes.
Way expect_way(const QuantizedTensor& a, const QuantizedTensor& b, const std::string& where) {
  const Way way = way_of(a, b);
  if (way == Way::as_they_are) {
    expect_exact(a, b, where);
    return way;
  }
  const AlignedOperand left = aligned(a, way == Way::by_row),
                       right = aligned(b, way == Way::by_row);
  const Product got = product_of(a, b);
  EXPECT_EQ(got.changed, left.changed + right.changed) << where;
  EXPECT_EQ(differences(got.result, model_of(left.tensor, right.tensor)), "") << where;
  return way;
}

// Values times a power of two for each block of 32.
template <typename Power>
std::vector<float> in_blocks(std::int64_t rows, std::int64_t cols, unsigned seed, Power power) {
  std::vector<float> values = usual_values(rows, cols, seed);
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    float& x = values[static_cast<std::size_t>(i)];
    x = std::ldexp(x, static_cast<int>(power(i / cols, i % cols / 32)));
  }
  return values;
}

QuantizedTensor quantized(const std::vector<float>& values, Shape shape, const Scaling& scaling) {
  return quantize(values_as(values, shape, DType::f32).view(), scaling,
                  {.backend = &reference_backend()});
}

// Large in every other block, and small where the other operand is large (`odd`): most of a sum
// comes from what alignment would flush to zero.
QuantizedTensor crossed(std::int64_t rows, std::int64_t cols, unsigned seed, bool odd,
                        const Scaling& scaling = preset("mxfp8"), std::int64_t matrices = 0) {
  const int half = scaling.format == e5m2 ? 22 : 14;
  const std::vector<float> values = in_blocks(
      rows, cols, seed,
      [=](std::int64_t, std::int64_t block) { return (block % 2 == 1) == odd ? half : -half; });
  return quantized(
      values, matrices > 0 ? Shape{matrices, rows / matrices, cols} : Shape{rows, cols}, scaling);
}

using GemmMx = support::CudaTest;

TEST_F(GemmMx, MxTakesEachOfThreeAlignModes) {
  int ways[3] = {}, changes = 0;
  for (const Format& format : {e4m3fn, e5m2})
    for (const double range : {0.5, 3.0, 9.0})
      for (const Sizes& sizes : {Sizes{33, 70, 64}, Sizes{200, 260, 300}, Sizes{64, 300, 1000},
                                 Sizes{130, 100, 520}, Sizes{1300, 1100, 130}}) {
        const auto mx_of = [&](std::int64_t rows, unsigned seed) {
          const std::int64_t blocks = (sizes.k + 31) / 32;
          const std::vector<float> values =
              in_blocks(rows, sizes.k, seed, [&](std::int64_t row, std::int64_t block) {
                return range * std::sin(static_cast<double>(row * blocks + block));
              });
          return quantized(values, {rows, sizes.k}, scaling_of("mxfp8", format));
        };
        const QuantizedTensor a = mx_of(sizes.m, 3), b = mx_of(sizes.n, 4);
        const Way way =
            expect_way(a, b, text(format_name(format), " range ", range, ", ", to_text(sizes)));
        ++ways[static_cast<int>(way)];
        changes += aligned(a, way == Way::by_row).changed > 0;
      }
  for (const int count : ways) EXPECT_GT(count, 0);
  EXPECT_GT(changes, 0);
}

// 28 binades within 128 columns: all small blocks of both would be zero, and so would the product.
TEST_F(GemmMx, LargeWhereTheOtherIsSmall) {
  const QuantizedTensor a = crossed(70, 256, 1, false), b = crossed(90, 256, 2, true);
  const AlignedOperand left = aligned(a, false), right = aligned(b, false);
  const oracle::Numbers x = oracle::numbers_of(left.tensor), y = oracle::numbers_of(right.tensor),
                        true_x = oracle::numbers_of(a), true_y = oracle::numbers_of(b);
  double lost = 0, all = 0;
  for (std::int64_t row = 0; row < 70; ++row)
    for (std::int64_t col = 0; col < 90; ++col) {
      const double sum = oracle::element_of(true_x, true_y, row, col).sum;
      lost += std::fabs(sum - oracle::element_of(x, y, row, col).sum);
      all += std::fabs(sum);
    }
  EXPECT_GT(lost, 0.99 * all);
  expect_exact(a, b, "crossed");
}

// Codes of all magnitudes with the largest of every block in the top binade: block 1 of each run is
// `spread` binades below the others.
QuantizedTensor at_spread(int spread, const Format& format) {
  constexpr std::int64_t kRows = 40, kDepth = 256;
  const QuantizedTensor made = usual_operand(scaling_of("mxfp8", format), kRows, kDepth, 1);
  const View codes = made.rowwise.codes.view(), scales = made.rowwise.scales.view();
  constexpr unsigned kTop = 0x78;  // 2^8 in e4m3, 2^15 in e5m2
  std::mt19937 random(5);
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t col = 0; col < kDepth; ++col)
      static_cast<std::byte*>(codes.data)[row * codes.strides[0] + col] =
          static_cast<std::byte>((col % 32 == 7 ? kTop : random() % kTop) | (random() & 0x80));
    for (std::int64_t block = 0; block < kDepth / 32; ++block)
      static_cast<std::byte*>(scales.data)[row * scales.strides[0] + block * scales.strides[1]] =
          static_cast<std::byte>(block % 4 == 1 ? 127 - spread : 127);
  }
  return made;
}

TEST_F(GemmMx, AtTheLimitAndBeyond) {
  for (const Format& format : {e4m3fn, e5m2}) {
    const int limit = format == e4m3fn ? 12 : 27;
    const QuantizedTensor plain = at_spread(0, format), at = at_spread(limit, format),
                          beyond = at_spread(limit + 1, format);
    for (const bool first : {true, false}) {
      const std::string where = text(format_name(format), first ? ", in A" : ", in B");
      EXPECT_EQ(expect_way(first ? at : plain, first ? plain : at, where), Way::by_columns);
      EXPECT_EQ(expect_way(first ? beyond : plain, first ? plain : beyond, where),
                Way::as_they_are);
    }
    EXPECT_GT(product_of(at, plain).changed, 0);
  }
}

// Channels that are 2^6 above others, and blocks of zeros beside large ones.
TEST_F(GemmMx, UsualOutliersAndZerosAreAligned) {
  constexpr std::int64_t kRows = 60, kDepth = 512;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (std::int64_t i = 0; i < kRows * kDepth; ++i) {
    const std::int64_t col = i % kDepth;
    const float x = normal(random);
    values.push_back(col / 32 % 5 == 3 ? 0.0F : col % 100 == 17 ? std::ldexp(x, 6) : x);
  }
  const QuantizedTensor a = quantized(values, {kRows, kDepth}, preset("mxfp8")),
                        b = usual_operand(preset("mxfp8"), 50, kDepth, 2);
  EXPECT_NE(expect_way(a, b, "outliers"), Way::as_they_are);
}

TEST_F(GemmMx, UnalignedInEveryShapeAndFormat) {
  for (const Format& format_a : {e4m3fn, e5m2})
    for (const Format& format_b : {e4m3fn, e5m2})
      for (const Sizes& sizes :
           {Sizes{1, 1, 64}, Sizes{7, 31, 33}, Sizes{129, 33, 127}, Sizes{33, 127, 129},
            Sizes{130, 260, 203}, Sizes{300, 5, 1000}, Sizes{3, 300, 96}})
        expect_exact(
            crossed(sizes.m, sizes.k, 3, false, scaling_of("mxfp8", format_a)),
            crossed(sizes.n, sizes.k, 4, true, scaling_of("mxfp8", format_b)),
            text(format_name(format_a), " by ", format_name(format_b), ", ", to_text(sizes)));
  // More tiles than SMs, and several tiles per block.
  expect_exact(crossed(1400, 160, 5, false), crossed(1500, 160, 6, true), "many tiles");
}

// One operand is MX; the other's scales are applied to sums.
TEST_F(GemmMx, UnalignedByAnyScaling) {
  for (const char* name : {"fp8", "fp8-channel", "fp8-1x128", "fp8-block"})
    for (const Sizes& sizes : {Sizes{40, 100, 300}, Sizes{140, 130, 512}}) {
      const std::string where = text(name, ", ", to_text(sizes));
      expect_exact(crossed(sizes.m, sizes.k, 1, false),
                   usual_operand(preset(name), sizes.n, sizes.k, 2), where);
      expect_exact(usual_operand(scaling_of(name, e5m2), sizes.m, sizes.k, 3),
                   crossed(sizes.n, sizes.k, 4, true), where);
    }
  expect_exact(crossed(60, 320, 5, false, preset("mxfp4")), crossed(150, 320, 6, true), "mxfp4");
}

TEST_F(GemmMx, UnalignedWithEpilogue) {
  constexpr std::int64_t kM = 150, kN = 200, kK = 300;
  const QuantizedTensor a = crossed(kM, kK, 1, false), b = crossed(kN, kK, 2, true);
  const Tensor sums = product_of(a, b).result,
               bias = values_as(usual_values(1, kN, 3), {kN}, DType::f32),
               residual = values_as(usual_values(kM, kN, 4), {kM, kN}, DType::f32);
  const Tensor bias_there = to_device(bias.view(), kThere),
               residual_there = to_device(residual.view(), kThere);
  const GemmOptions options{.bias = bias_there.view(),
                            .activation = ActivationKind::relu,
                            .residual = residual_there.view()};
  std::vector<float> wanted;
  for (std::int64_t i = 0; i < kM * kN; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const float sum = sums.span<float>()[at] + bias.span<float>()[static_cast<std::size_t>(i % kN)];
    wanted.push_back(std::max(sum, 0.0F) + residual.span<float>()[at]);
  }
  for (const DType out : {DType::f32, DType::bf16, DType::f16}) {
    GemmOptions its = options;
    its.out = out;
    EXPECT_EQ(differences(product_of(a, b, its).result, values_as(wanted, {kM, kN}, out)), "")
        << dtype_name(out);
  }
}

// A NaN scale, and Inf and NaN codes, act as in any product.
TEST_F(GemmMx, UnalignedWithNanAndInf) {
  constexpr std::int64_t kM = 40, kN = 30, kK = 256;
  const Scaling scaling = scaling_of("mxfp8", e5m2);
  const QuantizedTensor a = crossed(kM, kK, 1, false, scaling),
                        b = crossed(kN, kK, 2, true, scaling);
  const View codes = a.rowwise.codes.view(), scales = a.rowwise.scales.view();
  const auto code = [&](std::int64_t row, std::int64_t col) -> std::byte& {
    return static_cast<std::byte*>(codes.data)[row * codes.strides[0] + col];
  };
  code(3, 40) = std::byte{0x7C};  // Inf
  code(4, 40) = std::byte{0x7F};  // NaN
  static_cast<std::byte*>(scales.data)[5 * scales.strides[0] + 2 * scales.strides[1]] =
      std::byte{0xFF};
  const Tensor got = product_of(a, b).result;
  const oracle::Numbers x = oracle::numbers_of(a), y = oracle::numbers_of(b);
  Wrong wrong;
  for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
    const oracle::Element exact = oracle::element_of(x, y, row, col);
    const bool good = std::isfinite(exact.sum)
                          ? std::fabs(value - exact.sum) <= oracle::bound_f32(kK, exact.magnitude)
                          : value == exact.sum || (value != value && exact.sum != exact.sum);
    if (!good) wrong.add(row, col, value, exact.sum);
  });
  EXPECT_EQ(wrong.report(), "");
}

// Sums have one order: a group has the bits of its product by itself.
TEST_F(GemmMx, UnalignedInGroups) {
  const std::vector<std::int64_t> rows{3, 0, 150, 1, 130};
  constexpr std::int64_t kN = 140, kK = 200, kRows = 284, kGroups = 5;
  const QuantizedTensor a = crossed(kRows, kK, 1, false),
                        stack = crossed(kGroups * kN, kK, 2, true, preset("mxfp8"), kGroups),
                        flat = crossed(kGroups * kN, kK, 2, true);
  std::int64_t changed = 0, first = 0;
  const Tensor got = to_host(
      gemm_grouped(to_device(a, kThere), to_device(stack, kThere), rows, {.aligned = &changed})
          .view());
  EXPECT_EQ(changed, 0);
  const Tensor all = product_of(a, flat).result;  // every row by every matrix
  for (std::size_t group = 0; group < rows.size(); ++group) {
    Wrong wrong;
    for (std::int64_t row = first; row < first + rows[group]; ++row)
      for (std::int64_t col = 0; col < kN; ++col) {
        const double value = oracle::number_at(got.view(), row, col),
                     wanted = oracle::number_at(all.view(), row,
                                                static_cast<std::int64_t>(group) * kN + col);
        if (value != wanted) wrong.add(row, col, value, wanted);
      }
    EXPECT_EQ(wrong.report(), "") << "group " << group;
    first += rows[group];
  }
}

// The host does not wait for the device's decision: a graph takes the align mode of its operands.
TEST_F(GemmMx, AGraphTakesTheAlignModeOfItsOperands) {
  constexpr std::int64_t kM = 140, kN = 150, kK = 384;
  const QuantizedTensor a_here[] = {usual_operand(preset("mxfp8"), kM, kK, 1),
                                    crossed(kM, kK, 3, false)};
  const QuantizedTensor b_here = usual_operand(scaling_of("mxfp8", e5m2), kN, kK, 4);
  const QuantizedTensor a = to_device(a_here[0], kThere), b = to_device(b_here, kThere);
  const Tensor out = empty_there(kM, kN, DType::f32);
  const support::Stream stream;
  const GemmJob job{.a = operand_of(a),
                    .b = operand_of(b),
                    .out = matrix_of(out.view()),
                    .accumulator = Accumulator::native};
  const Graph graph(stream, [&] { api().kernels->gemm(stream.exec(), job); });
  for (const int turn : {0, 1, 0, 1, 1, 0}) {
    const QuantizedCopy &from = a_here[turn].rowwise, &to = a.rowwise;
    for (const auto& [here, there] :
         {std::pair{&from.codes, &to.codes}, std::pair{&from.scales, &to.scales}})
      support::must(cudaMemcpy(there->view().data, here->bytes().data(), here->bytes().size(),
                               cudaMemcpyHostToDevice));
    support::must(cudaMemset(out.view().data, 0xA5, static_cast<std::size_t>(out.nbytes())));
    support::must(cudaDeviceSynchronize());
    graph.launch(stream);
    stream.wait();
    EXPECT_EQ(differences(to_host(out.view()), product_of(a_here[turn], b_here).result), "")
        << "turn " << turn;
  }
}

// Also where its block is aligned to a larger exponent.
TEST_F(GemmMx, InfInMxStaysInf) {
  constexpr std::int64_t kRows = 20, kDepth = 128;
  std::vector<float> values(static_cast<std::size_t>(kRows * kDepth), 1.0F);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i / 32 % 2 == 1) values[i] = 0.0625F;
  const Scaling scaling = scaling_of("mxfp8", e5m2);
  const QuantizedTensor a = quantized(values, {kRows, kDepth}, scaling),
                        b = quantized(values, {kRows, kDepth}, scaling);
  static_cast<std::uint8_t*>(a.rowwise.codes.view().data)[3 * kDepth + 40] = 0x7C;
  const Tensor got =
      to_host(gemm(to_device(a, kThere), to_device(b, kThere), {.accumulator = Accumulator::native})
                  .view());
  for (std::int64_t row = 0; row < kRows; ++row)
    for (std::int64_t col = 0; col < kRows; ++col)
      EXPECT_EQ(std::isinf(got.span<float>()[static_cast<std::size_t>(row * kRows + col)]),
                row == 3)
          << row << ", " << col;
}

}  // namespace
}  // namespace octavo::testing
