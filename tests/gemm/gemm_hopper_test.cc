// The accumulator of Hopper's FP8 tensor cores: against a model in f64 that shares no code with it,
// against what was seen on an H200, and the table of docs/numerics/gemm.md.
#include <bit>

#include "tests/gemm/gemm_cases.h"

namespace octavo::testing {
namespace {

// The exponent of a code as alignment sees it: that of subnormal codes is the smallest normal one.
int exponent_of(double value, bool is_e4m3) {
  return std::max(std::ilogb(value), is_e4m3 ? -6 : -14);
}

// One instruction, in f64: every number here has fewer than 53 bits.
double step_of(double held, const std::vector<double>& a, const std::vector<double>& b,
               std::size_t first, std::size_t end, bool a_is_e4m3, bool b_is_e4m3) {
  int largest = -1000;
  if (held != 0) largest = std::ilogb(held);
  for (std::size_t k = first; k < end; ++k)
    if (a[k] * b[k] != 0)
      largest = std::max(largest, exponent_of(a[k], a_is_e4m3) + exponent_of(b[k], b_is_e4m3));
  if (largest == -1000) return 0;
  const double unit = std::ldexp(1.0, largest - 13);
  double sum = std::trunc(held / unit);
  for (std::size_t k = first; k < end; ++k) sum += std::trunc(a[k] * b[k] / unit);
  sum *= unit;
  if (sum == 0) return 0;
  const double last = std::ldexp(1.0, std::ilogb(sum) - 13);
  return std::trunc(sum / last) * last;
}

struct Model {
  std::int64_t promote_every = 128;
  std::int64_t tile_a = 0, tile_b = 0;  // how long a scale stays the same; 0: all along
  bool a_is_e4m3 = true, b_is_e4m3 = true;

  // f32 arithmetic is the processor's own here.
  [[nodiscard]] float sum(const oracle::Numbers& a, const oracle::Numbers& b, std::int64_t row,
                          std::int64_t col) const {
    const auto part = [](const std::vector<double>& all, std::int64_t index, std::int64_t cols) {
      return std::vector<double>(all.begin() + index * cols, all.begin() + (index + 1) * cols);
    };
    const std::vector<double> x = part(a.unscaled, row, a.cols), y = part(b.unscaled, col, a.cols),
                              p = part(a.scale, row, a.cols), q = part(b.scale, col, a.cols);
    const bool changes = (tile_a > 0 && tile_a < a.cols) || (tile_b > 0 && tile_b < a.cols);
    const auto ends = [&](std::int64_t k) {
      return k == a.cols || (promote_every > 0 && k % promote_every == 0) ||
             (tile_a > 0 && k % tile_a == 0) || (tile_b > 0 && k % tile_b == 0);
    };
    float total = 0;
    for (std::int64_t first = 0, k = 1; k <= a.cols; ++k) {
      if (!ends(k)) continue;
      double held = 0;
      for (std::int64_t at = first; at < k; at += 32)
        held = step_of(held, x, y, static_cast<std::size_t>(at),
                       static_cast<std::size_t>(std::min(k, at + 32)), a_is_e4m3, b_is_e4m3);
      const auto i = static_cast<std::size_t>(first);
      const float scale = static_cast<float>(p[i] * q[i]);
      total = changes ? std::fma(static_cast<float>(held), scale, total)
                      : total + static_cast<float>(held);
      first = k;
    }
    return changes ? total : total * static_cast<float>(p[0] * q[0]);
  }
};

// Codes of every kind, all binades alike, and a third of them subnormal or zero.
QuantizedTensor any_codes(const Scaling& scaling, std::int64_t rows, std::int64_t cols,
                          unsigned seed) {
  std::mt19937 random(seed);
  QuantizedTensor tensor =
      quantize(values_as(usual_values(rows, cols, seed), {rows, cols}, DType::f32).view(), scaling,
               {.backend = &reference_backend()});
  const unsigned last_finite = scaling.format == e4m3fn ? 0x7E : 0x7B;
  const unsigned subnormal = scaling.format == e4m3fn ? 8 : 4;
  for (std::byte& code : tensor.rowwise.codes.bytes()) {
    unsigned magnitude = static_cast<unsigned>(random()) % (last_finite + 1);
    if (random() % 3 == 0) magnitude %= subnormal;
    if (random() % 8 != 0) magnitude %= 0x50;  // so that small ones are not always cut off
    code = static_cast<std::byte>(magnitude | (random() & 1) << 7);
  }
  return tensor;
}

TEST(GemmHopper, BitForBitTheModelForEveryScaling) {
  const auto tiled = [](const Format& format, Tile tile) {
    Scaling scaling = preset("fp8");
    scaling.format = format;
    scaling.tile = tile;
    return scaling;
  };
  const std::pair<Scaling, Scaling> pairs[] = {
      {preset("fp8"), preset("fp8")},
      {preset("fp8"), preset("fp8:e5m2")},
      {preset("fp8:e5m2"), preset("fp8-channel")},
      {preset("fp8:e5m2"), preset("fp8:e5m2")},
      {preset("fp8-1x128"), preset("fp8-block")},
      {preset("mxfp8"), preset("mxfp8:e5m2")},
      {tiled(e4m3fn, {1, 48}), tiled(e4m3fn, {3, 0})},
      {tiled(e5m2, {2, 40}), tiled(e4m3fn, {1, 96})},
  };
  unsigned seed = 1;
  int sums = 0;
  for (const auto& [scaling_a, scaling_b] : pairs) {
    for (const std::int64_t depth : {1, 31, 32, 33, 100, 128, 129, 256, 1000}) {
      const QuantizedTensor a = any_codes(scaling_a, 9, depth, ++seed),
                            b = any_codes(scaling_b, 11, depth, ++seed);
      const oracle::Numbers x = oracle::numbers_of(a), y = oracle::numbers_of(b);
      for (const std::int64_t promote_every : {0, 32, 64, 128, 96}) {
        const Model model{.promote_every = promote_every,
                          .tile_a = scaling_a.tile.cols,
                          .tile_b = scaling_b.tile.cols,
                          .a_is_e4m3 = scaling_a.format == e4m3fn,
                          .b_is_e4m3 = scaling_b.format == e4m3fn};
        const Tensor got =
            gemm(a, b, {.accumulator = Accumulator::hopper_fp8, .promote_every = promote_every});
        for (std::int64_t row = 0; row < 9; ++row)
          for (std::int64_t col = 0; col < 11; ++col, ++sums) {
            const float wanted = model.sum(x, y, row, col),
                        value = got.span<float>()[static_cast<std::size_t>(row * 11 + col)];
            ASSERT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(wanted))
                << describe(scaling_a) << " x " << describe(scaling_b) << ", K = " << depth
                << ", promoted every " << promote_every << ": got " << value << "; expected "
                << wanted;
          }
      }
    }
  }
  EXPECT_EQ(sums, 8 * 9 * 5 * 99);
}

// Values as e4m3 codes, without a scale.
QuantizedTensor coded(std::vector<float> values, std::int64_t rows) {
  const Shape shape{rows, static_cast<std::int64_t>(values.size()) / rows};
  const Tensor codes = Tensor::codes(shape, e4m3fn), scale = Tensor::values({}, DType::f32);
  encode(value_view(values.data(), DType::f32, shape), codes.view());
  scale.span<float>()[0] = 1.0F;
  return quantized_from(shape, preset("fp8"), codes, scale);
}

float product_of(const std::vector<float>& a, const std::vector<float>& b) {
  return gemm(coded(a, 1), coded(b, 1),
              {.accumulator = Accumulator::hopper_fp8, .promote_every = 0})
      .span<float>()[0];
}

// What wgmma m64n128k32 gave on an H200.
TEST(GemmHopper, WhatTheDeviceWasSeenToDo) {
  // Two products of one instruction: 2^8 + 2^e is kept down to e = -5, thirteen bits below.
  const auto two = [](int e) {
    const int half = e / 2;
    return product_of({16, std::ldexp(1.0F, half)}, {16, std::ldexp(1.0F, e - half)}) - 256.0F;
  };
  for (int e = 7; e >= -5; --e) EXPECT_EQ(two(e), std::ldexp(1.0F, e)) << e;
  for (int e = -6; e >= -12; --e) EXPECT_EQ(two(e), 0.0F) << e;
  // A sum of 64 in the accumulator, then 2^e: kept down to e = -7, of either sign.
  const auto after = [](int e, float sign) {
    std::vector<float> a(64), b(64);
    a[0] = b[0] = 8;
    a[32] = sign * std::ldexp(1.0F, e / 2);
    b[32] = std::ldexp(1.0F, e - e / 2);
    return product_of(a, b) - 64.0F;
  };
  for (const float sign : {1.0F, -1.0F}) {
    for (int e = 5; e >= -7; --e) EXPECT_EQ(after(e, sign), sign * std::ldexp(1.0F, e)) << e;
    for (int e = -8; e >= -16; --e) EXPECT_EQ(after(e, sign), 0.0F) << e;
  }
  // There are no smaller groups: a small product is lost beside two large ones that cancel, at
  // every place, and beside a sum that cancels with a product.
  for (const std::size_t other : {std::size_t{1}, std::size_t{31}})
    for (std::size_t tiny = 1; tiny < 32; ++tiny) {
      if (tiny == other) continue;
      std::vector<float> a(32), b(32, 256.0F);
      a[0] = 256;
      a[other] = -256;
      a[tiny] = 0x1p-8F;
      EXPECT_EQ(product_of(a, b), 0.0F) << tiny;
      std::vector<float> c(64), d(64, 256.0F);
      c[0] = -256;
      c[32] = 256;
      c[32 + tiny] = 0x1p-8F;
      EXPECT_EQ(product_of(c, d), 0.0F) << tiny;
    }
  // What is cut off is cut toward zero, whatever the sign: beside 2^14 the unit is 2, and 3 is 2.
  EXPECT_EQ(product_of({128, 3}, {128, 1}), 16386.0F);
  EXPECT_EQ(product_of({128, -3}, {128, 1}), 16382.0F);
  EXPECT_EQ(product_of({-128, 3}, {128, 1}), -16382.0F);
  // The sum is cut once more: 2^-13 is kept beside ones, and lost in their sum of 16.
  std::vector<float> a(17, 1.0F), b(17, 1.0F);
  a[16] = 0x1p-7F, b[16] = 0x1p-6F;
  EXPECT_EQ(product_of(a, b), 16.0F);
  a[16] = 0x1p-3F;
  EXPECT_EQ(product_of(a, b), 16.0F + 0x1p-9F);
}

TEST(GemmHopper, NanAndInfAsIeeeSays) {
  Scaling scaling = preset("fp8-1x128");
  scaling.format = e5m2;
  const auto result_of = [&](std::initializer_list<std::pair<int, unsigned>> a_codes,
                             std::initializer_list<std::pair<int, unsigned>> b_codes) {
    QuantizedTensor a = any_codes(scaling, 2, 200, 1), b = any_codes(scaling, 1, 200, 2);
    for (const auto& [k, code] : a_codes)
      a.rowwise.codes.bytes()[static_cast<std::size_t>(k)] = static_cast<std::byte>(code);
    for (const auto& [k, code] : b_codes)
      b.rowwise.codes.bytes()[static_cast<std::size_t>(k)] = static_cast<std::byte>(code);
    const Tensor got = gemm(a, b, {.accumulator = Accumulator::hopper_fp8, .promote_every = 0});
    EXPECT_TRUE(b_codes.size() > 0 || std::isfinite(got.span<float>()[1]));
    return got.span<float>()[0];
  };
  constexpr unsigned kInf = 0x7C, kMinusInf = 0xFC, kNan = 0x7E, kOne = 0x3C, kMinusOne = 0xBC;
  EXPECT_EQ(result_of({{3, kInf}}, {{3, kOne}}), HUGE_VALF);
  EXPECT_EQ(result_of({{150, kInf}}, {{150, kMinusOne}}), -HUGE_VALF);
  EXPECT_EQ(result_of({{3, kInf}, {190, kInf}}, {{3, kOne}, {190, kOne}}), HUGE_VALF);
  EXPECT_TRUE(std::isnan(result_of({{3, kInf}, {190, kMinusInf}}, {{3, kOne}, {190, kOne}})));
  EXPECT_TRUE(std::isnan(result_of({{3, kInf}, {4, kMinusInf}}, {{3, kOne}, {4, kOne}})));
  EXPECT_TRUE(std::isnan(result_of({{3, kInf}}, {{3, 0x00}})));
  EXPECT_TRUE(std::isnan(result_of({{199, kNan}}, {{199, 0x00}})));
  EXPECT_TRUE(std::isnan(result_of({}, {{0, 0xFF}})));
}

// Relative L2 of products of uniform or normal values as e4m3 codes.
double error_of(bool uniform, std::int64_t depth, std::int64_t promote_every) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> even(0.0F, 1.0F);
  std::normal_distribution<float> normal;
  const auto random_codes = [&](std::int64_t rows) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows * depth; ++i)
      values.push_back(uniform ? even(random) : normal(random));
    return coded(std::move(values), rows);
  };
  const QuantizedTensor a = random_codes(24), b = random_codes(24);
  const oracle::Numbers x = oracle::numbers_of(a), y = oracle::numbers_of(b);
  const Tensor got =
      gemm(a, b, {.accumulator = Accumulator::hopper_fp8, .promote_every = promote_every});
  double error2 = 0, sum2 = 0;
  for_each_element(got, [&](std::int64_t row, std::int64_t col, double value) {
    const double exact = oracle::element_of(x, y, row, col).sum;
    error2 += (value - exact) * (value - exact);
    sum2 += exact * exact;
  });
  return std::sqrt(error2 / sum2);
}

// Of one sign, all of the error is bias, and hardly depends on the data: it is held to the digits
// that are printed. Of either sign it is a deviation over 576 sums, which varies by 1 / sqrt(2 *
// 576), 3 %.
TEST(GemmHopper, TheTable) {
  EXPECT_NEAR(error_of(true, 4096, 0), 6.6e-2, 0.05e-2);
  EXPECT_NEAR(error_of(true, 16384, 0), 2.5e-1, 0.05e-1);
  EXPECT_NEAR(error_of(true, 4096, 128), 5.0e-4, 0.1e-4);
  EXPECT_NEAR(error_of(true, 16384, 128), 5.0e-4, 0.1e-4);
  EXPECT_NEAR(error_of(true, 4096, 64), 1.4e-4, 0.05e-4);
  EXPECT_NEAR(error_of(true, 4096, 32), 4.0e-5, 0.05e-5);
  EXPECT_NEAR(error_of(false, 4096, 0), 1.3e-3, 0.15e-3);
  EXPECT_NEAR(error_of(false, 16384, 0), 3.2e-3, 0.35e-3);
  EXPECT_NEAR(error_of(false, 4096, 128), 1.3e-4, 0.13e-4);
  EXPECT_NEAR(error_of(false, 4096, 64), 7.5e-5, 0.75e-5);
  EXPECT_NEAR(error_of(false, 4096, 32), 4.5e-5, 0.45e-5);
}

}  // namespace
}  // namespace octavo::testing
