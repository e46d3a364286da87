// Edge cases of GEMM: empty shapes, non-finite values, and scales at the ends of their range.
#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

constexpr Accumulator kEvery[] = {Accumulator::f32, Accumulator::f16, Accumulator::f64,
                                  Accumulator::hopper_fp8, Accumulator::amx_bf16};

TEST(GemmEdges, NothingToSum) {
  const Tensor bias = values_as({1, -2, 3}, {3}, DType::f32),
               residual = values_as({10, 20, 30, 40, 50, 60}, {2, 3}, DType::f32);
  for (const char* name : {"fp8", "fp8-channel", "mxfp8", "fp8-block"}) {
    const MadeOperand a = made(quantized_as(name), {}, 2, 0),
                      b = made(quantized_as(name), {}, 3, 0);
    for (const BackendInfo& backend : multiplying_backends())
      for (const Accumulator accumulator : kEvery) {
        GemmOptions options{.accumulator = accumulator, .backend = backend.kernels};
        const Tensor zeros = gemm(a.operand(), b.operand(), options);
        for (const float x : zeros.span<float>())
          EXPECT_EQ(x, 0.0F) << name << ", " << backend.name;
        options.bias = bias.view();
        options.activation = ActivationKind::relu;
        options.residual = residual.view();
        const Tensor out = gemm(a.operand(), b.operand(), options);
        const std::vector<float> got(out.span<float>().begin(), out.span<float>().end());
        EXPECT_EQ(got, (std::vector<float>{11, 20, 33, 41, 50, 63})) << name << backend.name;
      }
  }
}

TEST(GemmEdges, NothingToFill) {
  const OperandKind kinds[] = {quantized_as("fp8"), quantized_as("mxfp8"), quantized_as("nvfp4"),
                               quantized_as("fp8-block"), valued_as(DType::bf16)};
  for (const OperandKind& kind : kinds)
    for (const BackendInfo& backend : multiplying_backends())
      for (const Sizes& sizes :
           {Sizes{0, 3, 40}, Sizes{3, 0, 40}, Sizes{0, 0, 40}, Sizes{0, 2, 0}, Sizes{0, 0, 0}}) {
        const MadeOperand a = made(kind, usual_values(sizes.m, sizes.k, 1), sizes.m, sizes.k),
                          b = made(kind, usual_values(sizes.n, sizes.k, 2), sizes.n, sizes.k);
        const GemmOptions options{.backend = backend.kernels};
        EXPECT_EQ(gemm(a.operand(), b.operand(), options).shape(), (Shape{sizes.m, sizes.n}));
        const QuantizedTensor q =
            gemm_quantized(a.operand(), b.operand(), preset("mxfp8"), options);
        EXPECT_EQ(q.shape, (Shape{sizes.m, sizes.n}));
      }
}

// NaN where the sum is NaN, Inf of its sign where it is that, else within the bound.
void expect_ieee(const MadeOperand& a, const MadeOperand& b, Accumulator accumulator,
                 const Kernels* backend, const std::string& where) {
  const Tensor got =
      gemm(a.operand(), b.operand(), {.accumulator = accumulator, .backend = backend});
  int shown = 0, not_finite = 0;
  for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
    const oracle::Element exact = oracle::element_of(a.numbers, b.numbers, row, col);
    bool right = false;
    if (std::isfinite(exact.sum)) {
      // The precision of 13 bits is not tested here.
      const double bound = accumulator == Accumulator::hopper_fp8 ? 0.1 * exact.magnitude
                           : accumulator == Accumulator::f16
                               ? oracle::bound_f16(a.numbers, b.numbers, row, col, exact.magnitude)
                               : oracle::bound_f32(a.numbers.cols, exact.magnitude);
      right = std::fabs(value - exact.sum) <=
              bound + oracle::bound_rounded(std::fabs(exact.sum) + bound, DType::f32);
    } else {
      ++not_finite;
      right = std::isnan(exact.sum) ? std::isnan(value) : value == exact.sum;
    }
    if (!right && ++shown <= 3)
      ADD_FAILURE() << where << ", row " << row << ", column " << col << ": got " << value
                    << "; expected " << exact.sum;
  });
  EXPECT_GT(not_finite, 0) << where;
  EXPECT_LT(not_finite, a.numbers.rows * b.numbers.rows) << where;
}

// Replaces some codes by NaN or Inf; one row in three has none.
void spoil(MadeOperand& made, unsigned nan, unsigned inf, unsigned seed) {
  std::mt19937 random(seed);
  auto codes = made.quantized.rowwise.codes.bytes();
  const auto cols = static_cast<std::size_t>(made.quantized.shape[1]);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (i / cols % 3 == 0) continue;
    if (random() % 97 == 0) codes[i] = static_cast<std::byte>(inf | (random() & 1) << 7);
    if (random() % 401 == 0) codes[i] = static_cast<std::byte>(nan);
    if (random() % 3 == 0) codes[i] = std::byte{0};
  }
  made.numbers = oracle::numbers_of(made.quantized);
}

TEST(GemmEdges, CodesThatAreNotFinite) {
  struct Case {
    const char *a, *b;
    unsigned nan_a, inf_a, nan_b, inf_b;
  };
  // e4m3 has no Inf: a number in its place.
  for (const Case& c : {Case{"fp8:e5m2", "fp8", 0x7E, 0x7C, 0x7F, 0x38},
                        Case{"mxfp8:e5m2", "mxfp8:e5m2", 0x7F, 0x7C, 0xFD, 0x7C},
                        Case{"fp8-channel", "fp8:e5m2", 0xFF, 0x38, 0x7D, 0x7C},
                        Case{"fp8-1x128", "fp8-block", 0x7F, 0x01, 0xFF, 0x81}}) {
    for (const Sizes& sizes : {Sizes{7, 10, 33}, Sizes{40, 35, 130}, Sizes{2, 129, 260}}) {
      MadeOperand a = made(quantized_as(c.a), usual_values(sizes.m, sizes.k, 5), sizes.m, sizes.k),
                  b = made(quantized_as(c.b), usual_values(sizes.n, sizes.k, 6), sizes.n, sizes.k);
      spoil(a, c.nan_a, c.inf_a, 7);
      spoil(b, c.nan_b, c.inf_b, 8);
      for (const BackendInfo& backend : multiplying_backends())
        for (const Accumulator accumulator : kEvery) {
          expect_ieee(a, b, accumulator, backend.kernels,
                      text(c.a, " x ", c.b, ", ", to_text(sizes), ", ", backend.name, ", ",
                           name_of(accumulator)));
          if (::testing::Test::HasFailure()) return;
        }
    }
  }
}

// A tile with a NaN has a NaN for its scale, and all that is made of it is NaN.
TEST(GemmEdges, PoisonedTilesAndValues) {
  for (const char* name : {"fp8-channel", "fp8-1x128", "mxfp8", "mxfp4", "mxint8", "nvfp4", ""}) {
    const OperandKind kind = *name != '\0' ? quantized_as(name) : valued_as(DType::f32);
    std::vector<float> values = usual_values(6, 200, 9);
    values[200 + 150] = std::nanf("");
    values[400 + 20] = HUGE_VALF;
    const MadeOperand a = made(kind, values, 6, 200),
                      b = made(kind, usual_values(5, 200, 10), 5, 200);
    for (const BackendInfo& backend : multiplying_backends())
      for (const Accumulator accumulator : {Accumulator::f32, Accumulator::f16, Accumulator::f64})
        expect_ieee(a, b, accumulator, backend.kernels,
                    text(kind.name, ", ", backend.name, ", ", name_of(accumulator)));
  }
}

// Products that are ordinary numbers of operands that are not, and products too small for f32.
TEST(GemmEdges, ScalesAtTheEndsOfTheirRange) {
  for (const char* name :
       {"fp8", "fp8-channel", "fp8-1x128", "fp8-block", "mxfp8", "mxfp6", "mxfp4", "mxint8", ""}) {
    const OperandKind kind = *name != '\0' ? quantized_as(name) : valued_as(DType::f32);
    for (const auto& [a_size, b_size] : {std::pair{-100.0F, 100.0F},
                                         {110.0F, -90.0F},
                                         {-60.0F, -60.0F},
                                         {-85.0F, -85.0F},
                                         {-20.0F, 115.0F},
                                         {115.0F, -20.0F}}) {
      const auto sized = [](std::vector<float> values, float size) {
        for (float& x : values) x *= std::exp2(size);
        return values;
      };
      const MadeOperand b = made(kind, sized(usual_values(9, 130, 4), b_size), 9, 130);
      for (const std::int64_t rows : {1, 3, 20}) {
        const MadeOperand a = made(kind, sized(usual_values(rows, 130, 3), a_size), rows, 130);
        for (const BackendInfo& backend : multiplying_backends())
          expect_product(gemm(a.operand(), b.operand(), {.backend = backend.kernels}), a.numbers,
                         b.numbers, Accumulator::f32,
                         text(rows, " rows, ", kind.name, ", 2^", a_size, " x 2^", b_size, ", ",
                              backend.name));
      }
    }
  }
}

// Where a piece of K ends within a tile, and tiles are wider than an MX block; and long rows, which
// GEMV takes in several pieces.
TEST(GemmEdges, DepthsThatCutTilesAndPieces) {
  const auto tiled = [](const char* name, std::int64_t cols) {
    return changed(name, text(name, " 1x", cols), [&](Scaling& s) { s.tile = {1, cols}; });
  };
  struct Case {
    OperandKind kind;
    std::vector<std::int64_t> depths;
  };
  const std::vector<std::int64_t> wide = {96, 160, 576, 2144}, longest = {2050, 8200};
  for (const Case& c :
       {Case{tiled("mxfp8", 64), wide}, Case{tiled("mxfp8", 128), wide},
        Case{tiled("mxfp4", 128), wide}, Case{tiled("nvfp4", 64), wide},
        Case{quantized_as("fp8"), longest}, Case{quantized_as("mxfp8"), longest},
        Case{quantized_as("nvfp4"), longest}, Case{quantized_as("fp8-1x128"), longest},
        Case{changed("fp8-channel", "int8", [](Scaling& s) { s.format = mxint8; }), longest}})
    for (const std::int64_t depth : c.depths)
      for (const std::int64_t rows : {1, 5, 40}) {
        if (rows > 5 && depth > 2050) continue;  // only few rows are taken in pieces
        const MadeOperand a = made(c.kind, usual_values(rows, depth, 11), rows, depth),
                          b = made(c.kind, usual_values(5, depth, 12), 5, depth);
        for (const BackendInfo& backend : multiplying_backends())
          expect_product(gemm(a.operand(), b.operand(), {.backend = backend.kernels}), a.numbers,
                         b.numbers, Accumulator::f32,
                         text(rows, " rows, ", c.kind.name, ", K = ", depth, ", ", backend.name));
        if (::testing::Test::HasFailure()) return;
      }
}

// Sums of a whole row before the scale of A, and of integers before their unit, stay finite.
TEST(GemmEdges, ScalesThatCancelEachOther) {
  const auto full = [](const OperandKind& kind, std::int64_t rows, float value) {
    return made(kind, std::vector<float>(static_cast<std::size_t>(rows * 512), value), rows, 512);
  };
  const OperandKind tensor = quantized_as("fp8:e5m2"), mx = quantized_as("mxfp8:e5m2"),
                    int8 = changed("fp8", "int8", [](Scaling&s) { s.format = mxint8; }),
                    block = changed("fp8-1x128", "1x128", [](Scaling&s) { s.format = e5m2; });
  struct Case {
    OperandKind a, b;
    float a_value, b_value;
  };
  for (const Case& c :
       {Case{tensor, mx, 57344 * 0x1p-60F, 57344 * 0x1p88F}, Case{int8, int8, 0x1p-100F, 0x1p114F},
        Case{block, block, 0x1p-60F, 0x1p-60F}, Case{block, block, 0x1p80F, 0x1p-70F}})
    for (const std::int64_t rows : {1, 5}) {
      const MadeOperand a = full(c.a, rows, c.a_value), b = full(c.b, 3, c.b_value);
      for (const BackendInfo& backend : multiplying_backends())
        expect_product(gemm(a.operand(), b.operand(), {.backend = backend.kernels}), a.numbers,
                       b.numbers, Accumulator::f32,
                       text(rows, " rows, ", c.a.name, " x ", c.b.name, ", ", backend.name));
    }
}

}  // namespace
}  // namespace octavo::testing
