#include "octavo/round/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/format/named_formats.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/stochastic.h"

namespace octavo {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr EncodePolicy kIeee{.overflow = Overflow::ieee};
constexpr EncodePolicy policy(Rounding rounding, Overflow overflow = Overflow::saturate) {
  return {.rounding = rounding, .overflow = overflow};
}

// The reference vectors of the project, at compile time.
static_assert(encode<e4m3fn>(__builtin_bit_cast(float, 0x3F880001u)) == 0x39,
              "f32, one ulp above a tie");
static_assert(decode<e4m3fn>(encode<e4m3fn>(1.0625 + 0x1p-40)) == 1.125, "f64 rounds once");
static_assert(decode<e4m3fn>(encode<e4m3fn>(255)) == 256, "the carry enters the exponent");
static_assert(encode<e4m3fn>(-0.0) == 0x80 && encode<e5m2>(-0.0) == 0x80 &&
                  encode<e2m1fn>(-0.0) == 0x8,
              "-0 keeps its sign");
static_assert(encode<e4m3fnuz>(-0.0) == 0 && encode<mxint8>(-0.0) == 0 &&
                  encode<e8m0fnu>(-0.0) == 0,
              "where there is one");
static_assert(decode<e4m3fn>(encode<e4m3fn>(1)) == 1 && decode<e4m3fn>(encode<e4m3fn>(2)) == 2 &&
              decode<e4m3fn>(encode<e4m3fn>(3)) == 3);

// Overflow: round first, then compare with the largest value.
static_assert(encode<e4m3fn>(464, kIeee) == 0x7E && encode<e4m3fn>(464.00001, kIeee) == 0x7F,
              "448 has the even code");
static_assert(encode<e5m2>(61439.999, kIeee) == 0x7B && encode<e5m2>(61440, kIeee) == 0x7C,
              "57344 has the odd code");
static_assert(encode<e4m3fnuz>(247.999, kIeee) == 0x7F && encode<e4m3fnuz>(248, kIeee) == 0x80 &&
              encode<e4m3fnuz>(-248, kIeee) == 0x80);
static_assert(encode<e2m1fn>(1e30, kIeee) == 7 && encode<e2m1fn>(-kInf, kIeee) == 0xF,
              "no Inf, no NaN: nothing but the largest value");
static_assert(encode<e5m2>(1e30, policy(Rounding::toward_zero, Overflow::ieee)) == 0x7B,
              "IEEE 754 section 7.4");
static_assert(encode<e5m2>(kInf, policy(Rounding::toward_zero, Overflow::ieee)) == 0x7C,
              "Inf is not rounded");
static_assert(encode<e5m2>(kInf, policy(Rounding::nearest_even, Overflow::propagate)) == 0x7C);
static_assert(encode<e5m2>(1e30, policy(Rounding::nearest_even, Overflow::propagate)) == 0x7B);
static_assert(encode<e4m3fn>(kInf, policy(Rounding::nearest_even, Overflow::propagate)) == 0x7E);
static_assert(encode<e4m3fn>(kInf, policy(Rounding::nearest_even, Overflow::saturate_finite)) ==
              0x7F);

// Roundings between 1 (0x38, even) and 1.125 (0x39).
static_assert(encode<e4m3fn>(1.0625) == 0x38 && encode<e4m3fn>(1.1875) == 0x3A, "ties to even");
static_assert(encode<e4m3fn>(1.0625, policy(Rounding::nearest_away)) == 0x39 &&
              encode<e4m3fn>(-1.0625, policy(Rounding::nearest_away)) == 0xB9);
static_assert(encode<e4m3fn>(1.1, policy(Rounding::toward_zero)) == 0x38 &&
              encode<e4m3fn>(-1.1, policy(Rounding::toward_zero)) == 0xB8);
static_assert(encode<e4m3fn>(1.01, policy(Rounding::up)) == 0x39 &&
              encode<e4m3fn>(-1.1, policy(Rounding::up)) == 0xB8);
static_assert(encode<e4m3fn>(1.1, policy(Rounding::down)) == 0x38 &&
              encode<e4m3fn>(-1.01, policy(Rounding::down)) == 0xB9);
static_assert(encode<e4m3fn>(1.001, policy(Rounding::to_odd)) == 0x39 &&
              encode<e4m3fn>(1.2, policy(Rounding::to_odd)) == 0x39);
static_assert(encode<e4m3fn>(1.0625, policy(Rounding::stochastic), 0x7FFF) == 0x38, "half + R < 1");
static_assert(encode<e4m3fn>(1.0625, policy(Rounding::stochastic), 0x8000) == 0x39,
              "half + R >= 1");

// An exponent-only format: zero, negative values, values below the smallest.
static_assert(encode<e8m0fnu>(3) == 128 && encode<e8m0fnu>(1.5) == 128 && encode<e8m0fnu>(0) == 0 &&
              encode<e8m0fnu>(0x1p-140) == 0);
static_assert(encode<e8m0fnu>(3, policy(Rounding::up)) == 129 &&
              encode<e8m0fnu>(3, policy(Rounding::toward_zero)) == 128);
static_assert(encode<e8m0fnu>(-2) == 0 &&
              encode<e8m0fnu>(-2, {.negative_input = NegativeInput::magnitude}) == 128);
static_assert(encode<e8m0fnu>(-2, {.negative_input = NegativeInput::nan}) == 0xFF &&
              encode<e8m0fnu>(0, {.zero_input = ZeroInput::nan}) == 0xFF);
static_assert(encode<e8m0fnu>(0x1.1p-127) == 0 &&
              encode<e8m0fnu>(0x1.1p-127, {.tiny_rounds_up = true}) == 1);
static_assert(encode<e8m0fnu>(0x1p-127, {.tiny_rounds_up = true}) == 0 &&
              encode<e8m0fnu>(0x1.1p-128, {.tiny_rounds_up = true}) == 0);
static_assert(encode<e4m3fn>(0x1.1p-9, {.tiny_rounds_up = true}) == 1,
              "formats with zero do not know it");

TEST(EncodeValue, NanCodes) {
  EXPECT_EQ(encode<e4m3fn>(kNan), 0x7Fu);
  EXPECT_EQ(encode<e4m3fn>(-kNan), 0xFFu);
  EXPECT_EQ(encode<e4m3fn>(-kNan, {.nan_code = NanCode::positive_ones}), 0x7Fu);
  EXPECT_EQ(encode<e5m2>(-kNan), 0xFFu);
  EXPECT_EQ(encode<e5m2>(-kNan, {.nan_code = NanCode::signed_quiet}), 0xFEu);
  EXPECT_EQ(encode<e5m2>(-kNan, {.nan_code = NanCode::positive_ones}), 0x7Fu);
  EXPECT_EQ(encode<e3m4>(kNan, {.nan_code = NanCode::signed_quiet}), 0x78u);
  EXPECT_EQ(encode<e4m3fnuz>(-kNan), 0x80u);
  EXPECT_EQ(encode<e8m0fnu>(-kNan), 0xFFu);
  EXPECT_EQ(encode<e2m1fn>(kNan, {.nan_input = NanInput::zero}), 0u);
  EXPECT_EQ(encode<e2m1fn>(-kNan, {.nan_input = NanInput::max}), 7u);
  EXPECT_EQ(encode<e2m1fn>(kNan, {.nan_input = NanInput::negated_zero}), 8u);
  EXPECT_EQ(encode<e2m1fn>(-kNan, {.nan_input = NanInput::negated_zero}), 0u);
}

TEST(EncodeValue, ReportsWhatItMet) {
  const auto met = [](double value, const EncodePolicy& how = {}) {
    const Encoded encoded = encode_value(e4m3fn, value, how);
    return (encoded.saturated ? 1 : 0) + (encoded.flushed ? 2 : 0) + (encoded.nan ? 4 : 0);
  };
  EXPECT_EQ(met(1), 0);
  EXPECT_EQ(met(0), 0) << "zero is not flushed";
  EXPECT_EQ(met(-0.0), 0);
  EXPECT_EQ(met(464), 0) << "rounds into the range";
  EXPECT_EQ(met(465), 1);
  EXPECT_EQ(met(465, kIeee), 1) << "whatever the policy makes of it";
  EXPECT_EQ(met(-kInf), 1);
  EXPECT_EQ(met(479, policy(Rounding::toward_zero)), 0) << "rounds to 448";
  EXPECT_EQ(met(481, policy(Rounding::toward_zero)), 1) << "rounds to 480, which is not there";
  EXPECT_EQ(met(0x1p-10), 2);
  EXPECT_EQ(met(0x1.1p-10), 0);
  EXPECT_EQ(met(0x1p-10, policy(Rounding::up)), 0);
  EXPECT_EQ(met(-5e-324), 2);
  EXPECT_EQ(met(kNan), 4);
  EXPECT_TRUE(encode_value(e8m0fnu, -1.0).saturated)
      << "below the smallest value of an unsigned format";
  EXPECT_FALSE(encode_value(e8m0fnu, 1e-300).flushed) << "there is no zero to become";
}

TEST(EncodeValue, ThroughF32RoundsTwice) {
  EXPECT_EQ(encode<e4m3fn>(1.0625 + 0x1p-40, {.via_f32 = true}), 0x38u);
  EXPECT_EQ(
      encode<e5m2>(
          1e300, {.rounding = Rounding::toward_zero, .overflow = Overflow::ieee, .via_f32 = true}),
      0x7Cu)
      << "f32 made it Inf";
}

// The grid of a format is closed: a value that is there comes back whatever the rounding.
TEST(EncodeValue, EveryValueOfEveryNamedFormatComesBack) {
  for (const NamedFormat& named : kNamedFormats) {
    for (std::uint32_t code = 0; code <= named.format.code_mask(); ++code) {
      const double value = decode(named.format, code);
      if (std::isnan(value)) continue;
      for (int rounding = 0; rounding <= static_cast<int>(Rounding::stochastic); ++rounding) {
        for (const std::uint32_t random : {0u, 0xFFFFu}) {
          const Encoded encoded = encode_value(
              named.format, value, policy(static_cast<Rounding>(rounding), Overflow::ieee), random);
          ASSERT_EQ(encoded.code, code) << named.name << " rounding " << rounding;
          ASSERT_FALSE(encoded.flushed) << named.name << " " << code;
        }
      }
    }
  }
}

// Encoding is monotone: a larger value never gets a smaller code. (Stochastic with one draw for
// all.)
TEST(EncodeValue, IsMonotone) {
  for (const NamedFormat& named : kNamedFormats) {
    for (int rounding = 0; rounding <= static_cast<int>(Rounding::stochastic); ++rounding) {
      double previous = -kInf;
      for (int step = -4000; step <= 4000; ++step) {
        const double value = std::copysign(std::exp2(std::abs(step) / 100.0 - 20) - 0x1p-20, step);
        const double got = decode(
            named.format,
            encode_value(named.format, value, policy(static_cast<Rounding>(rounding)), 12345).code);
        ASSERT_GE(got, previous) << named.name << " " << value;
        previous = got;
      }
    }
  }
}

// Draws are cut from Philox blocks; the block of (seed 0, counter 0) is the authors' first known
// answer.
TEST(StochasticDraw, CutsTheKnownBlocks) {
  static_assert(stochastic_draw(0, 0, 16) == 0xE8D5 && stochastic_draw(0, 1, 16) == 0x6627 &&
                stochastic_draw(0, 7, 16) == 0x9B00);
  static_assert(stochastic_draw(0, 0, 8) == 0xD5 && stochastic_draw(0, 1, 8) == 0xE8 &&
                stochastic_draw(0, 15, 8) == 0x9B);
  static_assert(stochastic_draw(0, 0, 3) == 0x5 && stochastic_draw(0, 0, 9) == 0xD5 &&
                stochastic_draw(0, 0, 10) == 0xD5);
  for (int bits = 1; bits <= kMaxStochasticBits; ++bits) {
    for (std::uint64_t index = 0; index < 1000; ++index)
      ASSERT_LT(stochastic_draw(77, index, bits), 1u << bits);
  }
  EXPECT_NE(stochastic_draw(1, 8, 16), stochastic_draw(0, 8, 16));
  EXPECT_NE(stochastic_draw(std::uint64_t{1} << 32, 8, 16), stochastic_draw(0, 8, 16))
      << "all 64 bits of a seed count";
}

}  // namespace
}  // namespace octavo
