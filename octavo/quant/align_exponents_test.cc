// Exponent alignment of MX, against an oracle that shares no code with kernels.
#include "octavo/quant/align_exponents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "octavo/backend/registry.h"
#include "octavo/base/error.h"
#include "octavo/base/error_testing_internal.h"
#include "octavo/ops/gemm.h"
#include "octavo/quant/align_exponents_testing_internal.h"

namespace octavo {
namespace {

using namespace align_testing;
using error_testing::expect_refused;

constexpr AlignTo kBoth[] = {AlignTo::rows, AlignTo::blocks_of_128};

void expect_aligned(const Case& given, const Shape& shape) {
  const QuantizedTensor mx = given.tensor(shape);
  for (const AlignTo to : kBoth) {
    const Wanted wanted = given.aligned(to);
    for (const Kernels* backend : {static_cast<const Kernels*>(nullptr), &reference_backend()}) {
      const Aligned got = align_exponents(mx, to, {.backend = backend});
      EXPECT_EQ(difference(got.tensor, wanted), "")
          << to_string(shape) << " to " << got.tensor.scaling.tile.cols;
      EXPECT_EQ(got.changed, wanted.changed) << to_string(shape);
      EXPECT_EQ(got.tensor.shape, shape);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// A block with the largest exponent, then blocks with every code at every exponent distance below
// it.
TEST(AlignExponents, EveryCodeAtEveryDistance) {
  for (const bool e5m2_codes : {false, true})
    for (const int top : {44, 127, 254})
      for (int down = 0; down <= 44; ++down) {
        Case given{.e5m2_codes = e5m2_codes, .rows = 1, .cols = 32 + 256};
        given.codes.assign(32, 0x31);
        for (int code = 0; code < 256; ++code)
          given.codes.push_back(static_cast<std::uint8_t>(code));
        given.exponents.assign(9, static_cast<std::uint8_t>(top - down));
        given.exponents[0] = static_cast<std::uint8_t>(top);
        SCOPED_TRACE(text(e5m2_codes ? "e5m2" : "e4m3", " top ", top, " down ", down));
        expect_aligned(given, {1, 288});
        if (HasFailure()) return;
      }
}

TEST(AlignExponents, ShapesRaggedScalesOfNanAndFarApart) {
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{1, 1},   {1, 31},  {4, 32},  {3, 33},
                                                         {5, 128}, {2, 129}, {7, 300}, {7, 4113}};
  unsigned seed = 0;
  for (const bool e5m2_codes : {false, true})
    for (const auto& [rows, cols] : sizes)
      for (const int spread : {0, 3, 40, 130})
        expect_aligned(random_case(e5m2_codes, rows, cols, spread, spread == 40, ++seed),
                       {rows, cols});
  expect_aligned(random_case(false, 1, 300, 20, true, 3), {300});
  expect_aligned(random_case(false, 24, 96, 20, true, 4), {2, 3, 4, 96});
}

TEST(AlignExponents, NothingAtAll) {
  for (const Shape& shape : {Shape{0, 64}, Shape{3, 0}, Shape{0, 0}, Shape{2, 0, 64}}) {
    const Tensor values = Tensor::values(shape, DType::f32);
    for (const AlignTo to : kBoth) {
      const Aligned got = align_exponents(quantize(values.view(), preset("mxfp8")), to);
      EXPECT_EQ(got.changed, 0);
      EXPECT_EQ(got.tensor.rowwise.codes.shape(), shape);
      EXPECT_EQ(quantize_aligned(values.view(), preset("mxfp8"), to).changed, 0);
    }
  }
}

Tensor noise(const Shape& shape, unsigned seed, double wide = 1.0) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  const Tensor made = Tensor::values(shape, DType::f32);
  for (float& x : made.span<float>())
    x = static_cast<float>(normal(random) * std::exp2(wide * normal(random)));
  return made;
}

// What was counted is what a reader sees.
TEST(AlignExponents, ChangedIsWhatDequantizeSays) {
  for (const char* name : {"mxfp8", "mxfp8:e5m2"}) {
    const QuantizedTensor mx = quantize(noise({19, 700}, 5, 4.0).view(), preset(name));
    const Tensor before = dequantize(mx, DType::f64);
    for (const AlignTo to : kBoth) {
      const Aligned got = align_exponents(mx, to);
      const Tensor after = dequantize(got.tensor, DType::f64);
      std::int64_t differ = 0;
      for (std::size_t i = 0; i < before.span<double>().size(); ++i)
        differ += before.span<double>()[i] != after.span<double>()[i] ? 1 : 0;
      EXPECT_EQ(got.changed, differ) << name;
      if (std::string(name) == "mxfp8") {
        EXPECT_GT(differ, 0);
      }
    }
  }
}

// Rows of zeros beside others, and blocks of zeros within them, cost nothing.
TEST(AlignExponents, ZerosAreAtNoDistance) {
  const Tensor values = Tensor::values({4, 160}, DType::f32);
  std::fill(values.span<float>().begin(), values.span<float>().end(), 0.0F);
  for (int i = 0; i < 32; ++i) values.span<float>()[static_cast<std::size_t>(192 + i)] = 1e30F;
  values.span<float>()[5] = -0.0F;
  const QuantizedTensor mx = quantize(values.view(), preset("mxfp8"));
  for (const AlignTo to : kBoth) {
    const Aligned got = align_exponents(mx, to);
    EXPECT_EQ(got.changed, 0);
    const Tensor before = dequantize(mx), after = dequantize(got.tensor);
    EXPECT_EQ(std::memcmp(before.bytes().data(), after.bytes().data(), before.bytes().size()), 0);
  }
}

void expect_same(const QuantizedCopy& a, const QuantizedCopy& b) {
  ASSERT_EQ(a.exists(), b.exists());
  if (!a.exists()) return;
  EXPECT_TRUE(std::ranges::equal(a.codes.bytes(), b.codes.bytes()));
  ASSERT_EQ(a.scales.view().strides, b.scales.view().strides);
  EXPECT_EQ(std::memcmp(a.scales.view().data, b.scales.view().data,
                        static_cast<std::size_t>(a.scales.nbytes())),
            0);
}

TEST(QuantizeAligned, IsQuantizeThenAlignExponents) {
  for (const Shape& shape : {Shape{5, 200}, Shape{64, 128}, Shape{2, 3, 65}, Shape{77}, Shape{}})
    for (const bool columnwise : {false, true})
      for (const ScaleRule rule : {ScaleRule::rceil, ScaleRule::floor})
        for (const AlignTo to : kBoth) {
          Scaling scaling = preset("mxfp8");
          scaling.columnwise = columnwise;
          scaling.scale.rule = rule;
          const Tensor values = noise(shape, 7, 3.0);
          if (shape.rank() > 0) values.span<float>()[1] = std::nanf("");
          Counts counts;
          float amax = 0;
          const QuantizedTensor mx =
              quantize(values.view(), scaling, {.counts = &counts, .amax = &amax});
          const Aligned wanted = align_exponents(mx, to);
          Counts got_counts;
          float got_amax = 0;
          const Aligned got = quantize_aligned(values.view(), scaling, to,
                                               {.counts = &got_counts, .amax = &got_amax});
          expect_same(got.tensor.rowwise, wanted.tensor.rowwise);
          expect_same(got.tensor.columnwise, wanted.tensor.columnwise);
          EXPECT_EQ(got.changed, wanted.changed);
          EXPECT_EQ(got_counts, counts);
          EXPECT_EQ(std::bit_cast<std::uint32_t>(got_amax), std::bit_cast<std::uint32_t>(amax));
          EXPECT_EQ(got.tensor.scaling, wanted.tensor.scaling);
        }
}

// Each along its own rows: that of the columnwise copy is that of the transpose.
TEST(AlignExponents, ColumnwiseCopies) {
  Scaling both = preset("mxfp8");
  both.columnwise = true;
  const QuantizedTensor mx = quantize(noise({96, 160}, 9, 4.0).view(), both);
  QuantizedTensor transpose = transposed(mx), upright = mx;
  for (QuantizedTensor* one : {&transpose, &upright}) {
    one->columnwise = {};
    one->scaling.columnwise = false;
    one->scaling.rowwise = true;
  }
  for (const AlignTo to : kBoth) {
    const Aligned got = align_exponents(mx, to), rows = align_exponents(upright, to),
                  cols = align_exponents(transpose, to);
    expect_same(got.tensor.rowwise, rows.tensor.rowwise);
    expect_same(got.tensor.columnwise, cols.tensor.rowwise);
    EXPECT_EQ(got.changed, rows.changed + cols.changed);
    EXPECT_GT(rows.changed, 0);
    EXPECT_GT(cols.changed, 0);
    expect_same(transposed(got.tensor).rowwise, cols.tensor.rowwise);
  }
}

// f64 sums are exact here: products of e4m3 are multiples of 2^-18 below 2^18, exponents are at
// most 3 apart in either operand, which is 6 bits more, and 320 of them 9 more: 51 of 53 bits.
// Codes below 2^-3 are left out, so that three steps down change none.
TEST(AlignExponents, ProductsAreThoseOfMx) {
  const auto operand = [](std::int64_t rows, unsigned seed) {
    Case made = random_case(false, rows, 320, 3, false, seed);
    for (std::uint8_t& code : made.codes)
      if (std::fabs(number_of(false, code)) < 0.125) code = 0x38;
    return made.tensor();
  };
  const QuantizedTensor a = operand(33, 1), b = operand(40, 2);
  const GemmOptions exact{.out = DType::f64, .accumulator = Accumulator::f64};
  const Tensor wanted = gemm(a, b, exact);
  for (const AlignTo to : kBoth) {
    const Aligned fa = align_exponents(a, to), fb = align_exponents(b, to);
    ASSERT_EQ(fa.changed + fb.changed, 0);
    for (const auto& [x, y] : {std::pair{&fa.tensor, &fb.tensor}, {&fa.tensor, &b}}) {
      const Tensor got = gemm(*x, *y, exact);
      EXPECT_TRUE(std::ranges::equal(got.bytes(), wanted.bytes()));
    }
  }
}

// Small integers: all sums are exact in f32, whatever a kernel's order.
TEST(AlignExponents, ProductsOfSmallIntegersInF32) {
  const auto operand = [](const Shape& shape, int step) {
    const Tensor values = Tensor::values(shape, DType::f32);
    int at = 0;
    for (float& x : values.span<float>()) {
      const int block = at / 32 % 3;
      x = static_cast<float>((at * step % 7 - 3) * (1 << block));
      ++at;
    }
    return quantize(values.view(), preset("mxfp8"));
  };
  const QuantizedTensor a = operand({3, 17, 224}, 5), b = operand({3, 24, 224}, 3);
  const Tensor wanted = gemm(a, b);
  for (const AlignTo to : kBoth) {
    const Aligned fa = align_exponents(a, to), fb = align_exponents(b, to);
    ASSERT_EQ(fa.changed + fb.changed, 0);
    EXPECT_TRUE(std::ranges::equal(gemm(fa.tensor, fb.tensor).bytes(), wanted.bytes()));
  }
}

TEST(AlignExponents, IntoMemoryThatIsThere) {
  const QuantizedTensor mx = quantize(noise({6, 256}, 11, 5.0).view(), preset("mxfp8"));
  for (const AlignTo to : kBoth) {
    const Aligned wanted = align_exponents(mx, to);
    QuantizedTensor out = make_aligned({6, 256}, DType::f32, preset("mxfp8"), to);
    std::int64_t changed = 1000;
    align_exponents_into(mx, out, {}, &changed);
    expect_same(out.rowwise, wanted.tensor.rowwise);
    EXPECT_EQ(changed, 1000 + wanted.changed);
    align_exponents_into(mx, out);  // without a count
  }
}

TEST(AlignExponents, WhatCannotBe) {
  const Tensor values = noise({8, 64}, 1);
  const auto refused = [&](const Scaling& scaling, ErrorCode code, const std::string& words) {
    expect_refused(code, words,
                   [&] { (void)align_exponents(quantize(values.view(), scaling), AlignTo::rows); });
    expect_refused(code, words,
                   [&] { (void)quantize_aligned(values.view(), scaling, AlignTo::rows); });
  };
  refused(preset("fp8-channel"), ErrorCode::invalid_argument, "expected MX");
  refused(preset("fp8-1x128"), ErrorCode::invalid_argument, "expected MX");
  refused(preset("nvfp4"), ErrorCode::invalid_argument, "expected MX");
  refused(preset("mxfp4"), ErrorCode::wrong_type, "requantize to mxfp8 first");
  refused(preset("mxfp6"), ErrorCode::wrong_type, "e2m3fn");
  refused(preset("mxint8"), ErrorCode::wrong_type, "mxint8");
  Scaling transpose = preset("mxfp8");
  transpose.axis = 0;
  refused(transpose, ErrorCode::unsupported, "axis 0");

  const QuantizedTensor mx = quantize(values.view(), preset("mxfp8"));
  QuantizedTensor other = make_aligned({8, 32}, DType::f32, preset("mxfp8"), AlignTo::rows);
  expect_refused(ErrorCode::invalid_argument, "[8, 64]", [&] { align_exponents_into(mx, other); });
  QuantizedTensor plain = quantize(values.view(), preset("fp8-channel"));
  expect_refused(ErrorCode::invalid_argument, "make_aligned",
                 [&] { align_exponents_into(mx, plain); });
  expect_refused(ErrorCode::invalid_argument, "no codes", [&] {
    QuantizedTensor nothing;
    nothing.scaling = preset("mxfp8");
    (void)align_exponents(nothing, AlignTo::rows);
  });
  expect_refused(ErrorCode::wrong_type, "use align_exponents", [&] {
    (void)quantize_aligned(mx.rowwise.codes.view(), preset("mxfp8"), AlignTo::rows);
  });
}

// The fix that the message names is lossless.
TEST(AlignExponents, Fp4ByWayOfMxfp8) {
  for (const char* name : {"mxfp4", "mxfp6", "mxfp6:e3m2fn"}) {
    const QuantizedTensor few = quantize(noise({16, 256}, 3, 2.0).view(), preset(name));
    const Tensor before = dequantize(few), after = dequantize(requantize(few, preset("mxfp8")));
    EXPECT_TRUE(std::ranges::equal(before.bytes(), after.bytes())) << name;
  }
}

}  // namespace
}  // namespace octavo
