// Five to sixteen rows, which some backends multiply by kernels of their own: every number of rows
// beside its neighbours, ragged panels, K in several blocks, every code of a format.
#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

OperandKind rows_of(const Format& format) {
  return changed("fp8-channel", format_name(format), [&](Scaling& s) { s.format = format; });
}

std::vector<OperandKind> every_kind() {
  std::vector<OperandKind> kinds;
  for (const char* name : {"fp8", "fp8-1x128", "fp8-block", "mxfp8", "mxfp8:e5m2", "mxfp6", "mxfp4",
                           "nvfp4", "int8-channel", "int4"})
    kinds.push_back(quantized_as(name));
  kinds.push_back(rows_of(e4m3fnuz));
  kinds.push_back(rows_of(mxint8));
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) kinds.push_back(valued_as(dtype));
  return kinds;
}

void expect_of_sizes(const OperandKind& kind, const Sizes& sizes) {
  const MadeOperand a = made(kind, usual_values(sizes.m, sizes.k, 21), sizes.m, sizes.k),
                    b = made(kind, usual_values(sizes.n, sizes.k, 22), sizes.n, sizes.k);
  for (const BackendInfo& backend : multiplying_backends())
    expect_product(gemm(a.operand(), b.operand(), {.backend = backend.kernels}), a.numbers,
                   b.numbers, Accumulator::f32,
                   text(kind.name, ", ", to_text(sizes), ", ", backend.name));
}

TEST(GemmSmallM, EveryNumberOfRows) {
  for (const OperandKind& kind : every_kind())
    for (std::int64_t rows = 4; rows <= 18; ++rows) expect_of_sizes(kind, {rows, 35, 160});
}

// Sums of no products, in memory that has held something else: the gradient of a weight whose batch
// is empty.
TEST(GemmSmallM, OfNoDepth) {
  const OperandKind kinds[] = {valued_as(DType::f32), valued_as(DType::bf16), quantized_as("fp8"),
                               quantized_as("mxfp4")};
  for (const OperandKind& kind : kinds)
    for (const std::int64_t rows : {1, 4, 6, 16, 17}) {
      const MadeOperand a = made(kind, {}, rows, 0), b = made(kind, {}, 35, 0);
      for (const BackendInfo& backend : multiplying_backends()) {
        const Tensor out = Tensor::values({rows, 35}, DType::f32);
        std::ranges::fill(out.span<float>(), 7.0F);
        gemm_into(a.operand(), b.operand(), out.view(), {.backend = backend.kernels});
        for (const float x : out.span<float>())
          ASSERT_EQ(x, 0.0F) << kind.name << ", " << rows << " rows, " << backend.name;
      }
    }
}

// Pieces of 128 that end early, blocks of 2048, tiles that end in a block; K that is no whole step.
TEST(GemmSmallM, DepthsAndPanels) {
  for (const OperandKind& kind : every_kind())
    for (const Sizes& sizes :
         {Sizes{7, 1, 16}, Sizes{16, 64, 416}, Sizes{9, 16, 136}, Sizes{6, 33, 2336}})
      expect_of_sizes(kind, sizes);
}

// A is the identity, so that a result is one code: exactly its value, or not finite where the row
// of B has a code that is not.
TEST(GemmSmallM, EveryCodeIsItsValue) {
  constexpr std::int64_t kRows = 16;
  std::vector<float> ones(kRows * kRows, 0.0F);
  for (std::size_t i = 0; i < kRows; ++i) ones[i * (kRows + 1)] = 1.0F;
  const Tensor a = values_as(ones, {kRows, kRows}, DType::f32);
  for (const Format& format :
       {e4m3fn, e4m3, e4m3fnuz, e4m3b11fnuz, e5m2, e5m2fnuz, e3m4, parse_format("e2m5fn"),
        parse_format("e6m1fn"), parse_format("e5m2fn"), e2m3fn, e3m2fn, mxint8}) {
    Scaling scaling = preset("fp8");
    scaling.format = format;
    scaling.packed = false;
    QuantizedTensor b =
        quantize(values_as(std::vector<float>(256, 1.0F), {16, 16}, DType::f32).view(), scaling,
                 {.backend = &reference_backend()});
    *b.rowwise.scales.span<float>().data() = 1.0F;
    const auto codes = b.rowwise.codes.bytes();
    const auto code_of = [&](std::size_t n, std::size_t k) {
      return static_cast<std::uint32_t>(n * kRows + k) & format.code_mask();
    };
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<std::byte>(code_of(i / kRows, i % kRows));
    for (const BackendInfo& backend : multiplying_backends()) {
      const Tensor got = gemm(a, b, {.backend = backend.kernels});
      for (std::size_t n = 0; n < kRows; ++n) {
        bool finite = true;
        for (std::size_t k = 0; k < kRows; ++k)
          finite = finite && std::isfinite(decode(format, code_of(n, k)));
        for (std::size_t m = 0; m < kRows; ++m) {
          const float found = got.span<float>()[m * kRows + n];
          const double wanted = decode(format, code_of(n, m));
          ASSERT_TRUE(finite ? static_cast<double>(found) == wanted : !std::isfinite(found))
              << format_name(format) << ", code " << code_of(n, m) << ", " << backend.name
              << ": got " << found << "; expected " << wanted;
        }
      }
    }
  }
}

// Wherever it is, and in no other row or column.
TEST(GemmSmallM, NanStaysInItsRow) {
  constexpr std::int64_t kDepth = 2096, kCols = 37;
  for (const std::int64_t rows : {6, 16, 40}) {
    const MadeOperand a = made(quantized_as("fp8"), usual_values(rows, kDepth, 5), rows, kDepth);
    for (const auto& [row, k] : {std::pair<std::int64_t, std::int64_t>{0, 0},
                                 {5, 127},
                                 {31, 1000},
                                 {32, 2047},
                                 {36, 2095}})
      for (const unsigned nan : {0x7FU, 0xFFU}) {
        MadeOperand b = made(quantized_as("fp8"), usual_values(kCols, kDepth, 6), kCols, kDepth);
        b.quantized.rowwise.codes.bytes()[static_cast<std::size_t>(row * kDepth + k)] =
            static_cast<std::byte>(nan);
        for (const BackendInfo& backend : multiplying_backends())
          for_each_element(gemm(a.operand(), b.operand(), {.backend = backend.kernels}),
                           [&](std::int64_t, std::int64_t col, double value) {
                             ASSERT_EQ(std::isnan(value), col == row)
                                 << rows << " rows, code of row " << row << " and k " << k
                                 << ", column " << col << ", " << backend.name;
                           });
      }
  }
}

TEST(GemmSmallM, ScalesAtTheEndsOfTheirRange) {
  for (const char* name : {"fp8", "fp8-1x128", "mxfp8", "mxfp4", "int8-channel"})
    for (const float size : {-100.0F, 100.0F}) {
      const auto sized = [](std::vector<float> values, float by) {
        for (float& x : values) x *= std::exp2(by);
        return values;
      };
      const MadeOperand a = made(quantized_as(name), sized(usual_values(11, 256, 3), -size), 11,
                                 256),
                        b = made(quantized_as(name), sized(usual_values(9, 256, 4), size), 9, 256);
      for (const BackendInfo& backend : multiplying_backends())
        expect_product(gemm(a.operand(), b.operand(), {.backend = backend.kernels}), a.numbers,
                       b.numbers, Accumulator::f32, text(name, ", 2^", size, ", ", backend.name));
    }
}

}  // namespace
}  // namespace octavo::testing
