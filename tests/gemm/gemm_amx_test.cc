// The sums of AMX's bf16 tiles (amx_bf16): against a model in integers that shares no code with it,
// by cases where an order of sums or a flushed number shows, and, on a CPU that has AMX, cpu/amx
// against it.
#include <bit>

#include "tests/gemm/gemm_cases.h"
#include "tests/oracle/amx_oracle.h"

namespace octavo::testing {
namespace {

bool same_bits(float x, float y) {
  return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) ||
         (std::isnan(x) && std::isnan(y));
}

Tensor bf16_matrix(const std::vector<std::uint16_t>& bits, std::int64_t rows) {
  const auto cols = static_cast<std::int64_t>(bits.size()) / rows;
  const Tensor to = Tensor::values({rows, cols}, DType::bf16);
  std::memcpy(to.view().data, bits.data(), bits.size() * 2);
  return to;
}

Tensor bf16_row(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float x : values) {
    const auto wide = std::bit_cast<std::uint32_t>(x);
    EXPECT_EQ(wide & 0xFFFF, 0u) << x << " is no bf16";
    bits.push_back(static_cast<std::uint16_t>(wide >> 16));
  }
  return bf16_matrix(bits, 1);
}

float sum_of(const std::vector<float>& a, const std::vector<float>& b,
             Accumulator accumulator = Accumulator::amx_bf16) {
  return gemm(bf16_row(a), bf16_row(b),
              {.accumulator = accumulator, .backend = &reference_backend()})
      .span<float>()[0];
}
float sum_of(const std::vector<float>& a, Accumulator accumulator = Accumulator::amx_bf16) {
  return sum_of(a, std::vector<float>(a.size(), 1.0F), accumulator);
}

// bf16 of every kind. Magnitudes are near `middle`, with some far off, and where `specials` is not
// 0, one in that many is subnormal, zero, Inf or NaN.
std::vector<std::uint16_t> any_bf16(std::int64_t count, int middle, unsigned specials,
                                    unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint16_t> bits;
  for (std::int64_t i = 0; i < count; ++i) {
    const int near = static_cast<int>(random() % 9) - 4, far = static_cast<int>(random() % 61) - 30;
    const int exponent = std::clamp(middle + (random() % 7 == 0 ? far : near), 1, 254);
    auto code = static_cast<std::uint16_t>(exponent << 7 | (random() & 0x7F));
    if (specials != 0 && random() % specials == 0) {
      const std::uint16_t any[] = {0x0000, 0x0001, 0x007F, 0x0040, 0x7F80, 0x7FC0, 0x0080, 0x7F7F};
      code = any[random() % std::size(any)];
    }
    bits.push_back(static_cast<std::uint16_t>(code | (random() & 1) << 15));
  }
  return bits;
}

TEST(GemmAmx, BitForBitTheModelForEveryKindOfBf16) {
  // Exponents: products of usual size, products about 2^-126, about 2^127, subnormal operands.
  struct Kind {
    int a, b;
    unsigned specials;
  };
  unsigned seed = 1;
  int sums = 0, zeros = 0, infinite = 0;
  for (const Kind& kind : {Kind{127, 127, 0}, Kind{64, 64, 0}, Kind{58, 66, 40}, Kind{190, 188, 0},
                           Kind{4, 127, 9}, Kind{127, 127, 60}, Kind{1, 250, 3}})
    for (const std::int64_t depth : {1, 2, 3, 31, 32, 33, 64, 100, 512, 1000}) {
      constexpr std::int64_t kRows = 6, kCols = 7;
      const auto x = any_bf16(kRows * depth, kind.a, kind.specials, ++seed),
                 y = any_bf16(kCols * depth, kind.b, kind.specials, ++seed);
      const Tensor got = gemm(bf16_matrix(x, kRows), bf16_matrix(y, kCols),
                              {.accumulator = Accumulator::amx_bf16});
      for (std::int64_t row = 0; row < kRows; ++row)
        for (std::int64_t col = 0; col < kCols; ++col, ++sums) {
          const auto part = [&](const std::vector<std::uint16_t>& all, std::int64_t index) {
            return std::vector<std::uint16_t>(all.begin() + index * depth,
                                              all.begin() + (index + 1) * depth);
          };
          const float wanted = oracle::amx_chain(part(x, row), part(y, col)),
                      value = got.span<float>()[static_cast<std::size_t>(row * kCols + col)];
          zeros += wanted == 0.0F ? 1 : 0;
          infinite += std::isinf(wanted) ? 1 : 0;
          ASSERT_TRUE(same_bits(value, wanted))
              << "exponents " << kind.a << " and " << kind.b << ", K = " << depth << ": got "
              << value << "; expected " << wanted;
        }
    }
  EXPECT_EQ(sums, 7 * 10 * 42);
  EXPECT_GT(zeros, 20);  // the kinds do what they are for
  EXPECT_GT(infinite, 20);
}

// Where scales enter: into elements, after all of K, or after each run.
TEST(GemmAmx, BitForBitTheModelForEveryScaling) {
  const auto tiled = [](const char* name, Tile tile) {
    return changed(name, text(name, " ", tile.rows, "x", tile.cols),
                   [&](Scaling& scaling) { scaling.tile = tile; });
  };
  const std::pair<OperandKind, OperandKind> pairs[] = {
      {quantized_as("fp8"), quantized_as("fp8-channel")},
      {quantized_as("fp8:e5m2"), valued_as(DType::bf16)},
      {valued_as(DType::bf16), quantized_as("mxfp4")},
      {quantized_as("mxfp8"), quantized_as("mxfp8:e5m2")},
      {quantized_as("nvfp4"), quantized_as("nvfp4")},
      {quantized_as("mxfp6"), quantized_as("fp8-channel")},
      {quantized_as("mxint8"), quantized_as("mxfp4")},
      {quantized_as("fp8-1x128"), quantized_as("fp8-block")},
      {quantized_as("fp8-1x128"), quantized_as("mxfp8")},
      {tiled("fp8", {1, 96}), tiled("fp8", {3, 64})},
      {tiled("fp8", {1, 1024}), quantized_as("fp8")},
      {tiled("mxfp8", {1, 1024}), quantized_as("mxfp8")},
      {tiled("fp8", {1, 48}), quantized_as("fp8")},
  };
  unsigned seed = 100;
  for (const auto& [a_kind, b_kind] : pairs)
    for (const std::int64_t depth : {1, 32, 33, 129, 500, 1500}) {
      const MadeOperand a = made(a_kind, usual_values(5, depth, ++seed), 5, depth),
                        b = made(b_kind, usual_values(6, depth, ++seed), 6, depth);
      const Tensor got = gemm(a.operand(), b.operand(), {.accumulator = Accumulator::amx_bf16});
      const oracle::AmxProduct model(a.numbers, oracle::amx_scales(a.is_quantized, a.quantized),
                                     b.numbers, oracle::amx_scales(b.is_quantized, b.quantized));
      for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
        const float wanted = model.sum(row, col);
        EXPECT_TRUE(same_bits(static_cast<float>(value), wanted))
            << a_kind.name << " x " << b_kind.name << ", K = " << depth << ": got " << value
            << "; expected " << wanted;
      });
      if (::testing::Test::HasFailure()) return;
    }
}

TEST(GemmAmx, EvenAndOddElementsHaveASumEach) {
  // One after another 2^24 + 1 is rounded to 2^24, twice. The odd sum is 2 before it meets 2^24.
  std::vector<float> a(32);
  a[0] = 0x1p24F, a[1] = a[3] = 1.0F;
  EXPECT_EQ(sum_of(a), 0x1p24F + 2);
  EXPECT_EQ(sum_of(a, Accumulator::f32), 0x1p24F);
  a[1] = 0.0F, a[2] = a[3] = 1.0F;  // both orders lose them
  EXPECT_EQ(sum_of(a), 0x1p24F);
  // The even sum alone: 2^24 + 1 is rounded to even, three times.
  a[3] = 0.0F, a[2] = a[4] = a[6] = 1.0F;
  EXPECT_EQ(sum_of(a), 0x1p24F);
}

TEST(GemmAmx, BothSumsBeginWithZero) {
  // The accumulator is added at the end of an instruction, to the sum of both.
  std::vector<float> a(64);
  a[0] = 0x1p24F, a[32] = a[33] = 1.0F;
  EXPECT_EQ(sum_of(a), 0x1p24F + 2);
  a[33] = 0.0F, a[34] = 1.0F;  // also within one of them
  EXPECT_EQ(sum_of(a), 0x1p24F + 2);
  EXPECT_EQ(sum_of(a, Accumulator::f32), 0x1p24F);
}

TEST(GemmAmx, SubnormalOperandsCountAsZero) {
  EXPECT_EQ(sum_of({0x1p-127F}, {0x1p100F}), 0.0F);
  EXPECT_EQ(sum_of({0x1p-127F}, {0x1p100F}, Accumulator::f32), 0x1p-27F);
  EXPECT_EQ(sum_of({0x1p-126F}, {0x1p100F}), 0x1p-26F);
  EXPECT_TRUE(std::isnan(sum_of({0x1p-127F}, {HUGE_VALF})));  // zero times Inf
}

TEST(GemmAmx, SubnormalSumsAreFlushed) {
  EXPECT_EQ(sum_of({0x1p-70F}, {0x1p-70F}), 0.0F);
  // Each of two products of 2^-127 is flushed before they meet.
  EXPECT_EQ(sum_of({0x1p-127F * 2, 0, 0x1p-127F * 2}, {0.5F, 0, 0.5F}), 0.0F);
  EXPECT_EQ(sum_of({0x1p-126F, 0, 0x1p-126F}, {0.5F, 0, 0.5F}, Accumulator::f32), 0x1p-126F);
  // A difference of normal numbers that is not one: between two of one sum, of both, of two
  // instructions.
  EXPECT_EQ(sum_of({0x1.8p-126F, 0, -0x1p-126F}), 0.0F);
  EXPECT_EQ(sum_of({0x1.8p-126F, -0x1p-126F}), 0.0F);
  std::vector<float> a(33);
  a[0] = 0x1.8p-126F, a[32] = -0x1p-126F;
  EXPECT_EQ(sum_of(a), 0.0F);
}

TEST(GemmAmx, WhatIsTinyIsKnownAfterRounding) {
  // 2^-126 - x. Steps of 24 bits are 2^-150 there; halfway is 2^-151 and goes to even, 2^-126.
  const auto below = [](float x, float y) { return sum_of({0x1p-126F, 0, -x}, {1, 0, y}); };
  EXPECT_EQ(below(0x1p-75F, 0x1p-77F), 0x1p-126F);
  EXPECT_EQ(below(0x1p-75F, 0x1p-76F), 0x1p-126F);
  EXPECT_EQ(below(0x1.02p-75F, 0x1p-76F), 0.0F);
  EXPECT_EQ(below(0x1.8p-75F, 0x1p-76F), 0.0F);
  EXPECT_EQ(std::fmaf(-0x1.8p-75F, 0x1p-76F, 0x1p-126F), 0x1p-126F) << "as IEEE rounds it";
}

TEST(GemmAmx, OverflowInOneOfTheSums) {
  constexpr float kHalf = 0x1p127F;  // of what overflows
  EXPECT_EQ(sum_of({kHalf, 0, kHalf}), HUGE_VALF);
  EXPECT_EQ(sum_of({kHalf, -kHalf, kHalf}), HUGE_VALF);  // before the odd sum can help
  EXPECT_EQ(sum_of({kHalf, -kHalf, kHalf}, Accumulator::f32), kHalf);
  EXPECT_TRUE(std::isnan(sum_of({kHalf, -kHalf, kHalf, -kHalf})));  // Inf - Inf; exactly, 0
  EXPECT_EQ(sum_of({kHalf, -kHalf, kHalf, -kHalf}, Accumulator::f32), 0.0F);
}

TEST(GemmAmx, NanAndInfAsIeeeSays) {
  EXPECT_EQ(sum_of({HUGE_VALF, 1}), HUGE_VALF);
  EXPECT_EQ(sum_of({1, -HUGE_VALF}), -HUGE_VALF);
  EXPECT_TRUE(std::isnan(sum_of({HUGE_VALF, -HUGE_VALF})));
  EXPECT_TRUE(std::isnan(sum_of({HUGE_VALF, 0, -HUGE_VALF})));
  EXPECT_TRUE(std::isnan(sum_of({HUGE_VALF}, {0})));
  EXPECT_TRUE(std::isnan(sum_of({1, std::nanf("")})));
  std::vector<float> a(40);
  a[0] = HUGE_VALF, a[39] = -HUGE_VALF;
  EXPECT_TRUE(std::isnan(sum_of(a)));
}

// cpu/amx where it multiplies in tiles: more than four rows, and scales that neither overflow a sum
// nor make one subnormal.
TEST(GemmAmx, TheCpuGivesTheBitsOfTheModel) {
  const Kernels* amx = nullptr;
  for (const BackendInfo& backend : backends()) {
    if (backend.name != "cpu/amx") continue;
    if (!backend.usable) GTEST_SKIP() << "no AMX here: " << backend.reason;
    amx = backend.kernels;
  }
  ASSERT_NE(amx, nullptr);
  const auto compare = [&](const Operand& a, const Operand& b, const std::string& where) {
    const Tensor got = gemm(a, b, {.accumulator = Accumulator::f32, .backend = amx}),
                 wanted = gemm(a, b, {.accumulator = Accumulator::amx_bf16});
    int different = 0;
    for (std::size_t i = 0; i < got.span<float>().size(); ++i) {
      const float x = got.span<float>()[i], y = wanted.span<float>()[i];
      if (!same_bits(x, y) && ++different <= 3)
        ADD_FAILURE() << where << ", element " << i << ": got " << x << "; expected " << y;
    }
    EXPECT_EQ(different, 0) << where << ", of " << got.span<float>().size();
  };
  unsigned seed = 500;
  // Up to sixteen rows and a whole number of lines have a kernel of their own.
  for (const Sizes& sizes :
       {Sizes{5, 3, 1}, Sizes{16, 16, 32}, Sizes{33, 40, 100}, Sizes{64, 70, 1000},
        Sizes{7, 129, 2049}, Sizes{5, 130, 416}, Sizes{16, 64, 4096}, Sizes{9, 193, 1024}}) {
    for (const auto& [middle, specials] :
         {std::pair{127, 0u}, std::pair{64, 0u}, std::pair{190, 0u}, std::pair{127, 300u}}) {
      const Tensor a = bf16_matrix(any_bf16(sizes.m * sizes.k, middle, specials, ++seed), sizes.m),
                   b = bf16_matrix(any_bf16(sizes.n * sizes.k, middle, specials, ++seed), sizes.n);
      compare(a, b, text("bf16 about 2^", middle - 127, ", ", to_text(sizes)));
    }
    for (const auto& [a_name, b_name] :
         {std::pair{"fp8", "fp8"}, std::pair{"fp8", "nvfp4"}, std::pair{"fp8:e5m2", "fp8-channel"},
          std::pair{"fp8-1x128", "fp8-block"}, std::pair{"mxfp8", "mxfp8"},
          std::pair{"mxfp8:e5m2", "mxfp4"}, std::pair{"nvfp4", "nvfp4"}}) {
      const auto operand = [&](const char* name, std::int64_t rows) {
        return made(quantized_as(name), usual_values(rows, sizes.k, ++seed), rows, sizes.k);
      };
      const MadeOperand a = operand(a_name, sizes.m), b = operand(b_name, sizes.n);
      compare(a.operand(), b.operand(), text(a_name, " x ", b_name, ", ", to_text(sizes)));
    }
  }
  // Every code of a byte, one NaN, one scale that is NaN, and blocks of zeros: their scale is
  // 2^-127, with which products of other blocks would not be exact.
  std::mt19937 random(7);
  for (const char* name :
       {"fp8-channel", "fp8-channel:e5m2", "mxfp8", "mxfp8:e5m2", "mxfp4", "nvfp4"}) {
    const Sizes sizes{11, 200, 288};
    const MadeOperand a = made(quantized_as("fp8"), usual_values(sizes.m, sizes.k, ++seed), sizes.m,
                               sizes.k),
                      b = made(quantized_as(name), usual_values(sizes.n, sizes.k, ++seed), sizes.n,
                               sizes.k);
    const auto& q = b.quantized.rowwise;
    const Format& format = q.codes.view().format;
    auto* const codes = static_cast<std::uint8_t*>(q.codes.view().data);
    for (std::int64_t i = 0; i < q.codes.nbytes(); ++i) {
      codes[i] = static_cast<std::uint8_t>(random());
      if (format.bits() == 8 && (is_nan(format, codes[i]) || is_inf(format, codes[i])) && i != 777)
        codes[i] = 0;
    }
    if (std::string_view(name).starts_with("mx")) {
      const std::int64_t per_row = sizes.k / 32, bytes = 32 * format.bits() / 8;
      auto* const scales = static_cast<std::uint8_t*>(q.scales.view().data);
      scales[20 * per_row + 3] = 255;
      // Nothing but normal numbers there: no other code asks for the slower way.
      std::memset(codes + 20 * per_row * bytes, 0x41, static_cast<std::size_t>(per_row * bytes));
      for (const std::int64_t block : {5 * per_row, 100 * per_row + 8}) {
        scales[block] = 0;
        std::memset(codes + block * bytes, 0, static_cast<std::size_t>(bytes));
      }
    }
    compare(a.operand(), b.operand(), text("every code of ", name));
  }
}

}  // namespace
}  // namespace octavo::testing
