#include "octavo/quant/scaled_convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/round/product.h"

namespace octavo {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = HUGE_VAL;

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::uint8_t> encoded(std::vector<float> values, const Shape& shape,
                                  const Factor& factor, const Format& format = e4m3fn) {
  std::vector<std::uint8_t> codes(values.size(), 0xAA);
  encode_scaled(value_view(values.data(), DType::f32, shape),
                code_view(codes.data(), format, shape), factor);
  return codes;
}

// fma has the rest of a product of normal numbers exactly; the library makes it in integers.
TEST(ProductToOdd, IsTheProductCutOffWithItsLastBitSet) {
  std::uint64_t state = 1;
  const auto next = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return std::ldexp(static_cast<double>(state >> 11), static_cast<int>(state >> 56) - 128 - 52);
  };
  for (int i = 0; i < 20000; ++i) {
    const double a = next(), b = i % 3 == 0 ? std::ldexp(1.0, i % 40) : next();
    const double nearest = a * b, rest = std::fma(a, b, -nearest);
    double wanted = rest < 0 ? std::nextafter(nearest, 0.0) : nearest;
    if (rest != 0)
      wanted = __builtin_bit_cast(double, __builtin_bit_cast(std::uint64_t, wanted) | 1);
    ASSERT_EQ(product_to_odd(a, b), wanted) << a << " * " << b;
    ASSERT_EQ(product_to_odd(-a, b), -wanted);
  }
}

TEST(ProductToOdd, Edges) {
  const double least = std::numeric_limits<double>::denorm_min(),
               most = std::numeric_limits<double>::max();
  EXPECT_EQ(product_to_odd(most, 2.0), most) << "the largest is odd";
  EXPECT_EQ(product_to_odd(least, 0.25), least);
  EXPECT_EQ(product_to_odd(-least, 1e-300), -least);
  EXPECT_EQ(product_to_odd(3 * least, 0.5), least) << "1.5 steps: cut off, which is odd";
  EXPECT_EQ(product_to_odd(5 * least, 0.5), 3 * least) << "2.5 steps: cut off and set";
  EXPECT_EQ(product_to_odd(least, 0x1p100), least * 0x1p100);
  EXPECT_EQ(product_to_odd(kInf, -2.0), -kInf);
  EXPECT_TRUE(std::isnan(product_to_odd(kInf, 0.0)));
  EXPECT_TRUE(std::signbit(product_to_odd(-0.0, 3.0)));
  EXPECT_TRUE(std::signbit(product_to_odd(-kNan, 3.0)));
}

TEST(DynamicFactor, ByHand) {
  constexpr auto kPower = DynamicRule::power_of_two, kValue = DynamicRule::value;
  EXPECT_EQ(dynamic_factor(448, 448, kPower), 1);
  EXPECT_EQ(dynamic_factor(std::nextafter(448.0, 449), 448, kPower), 0.5);
  EXPECT_EQ(dynamic_factor(7, 448, kPower), 64);
  EXPECT_EQ(dynamic_factor(0x1p-1074, 57344, kPower), 0x1p1023);
  EXPECT_EQ(dynamic_factor(3, 448, kValue), static_cast<double>(448.0F / 3));
  // Beyond f32's exponents it is the f64, which brings the amax to the largest value all the same.
  for (const double amax : {0x1p-149, 0x1.8p-140, 1e-300, 1e-45, 1e39, 1e300})
    EXPECT_EQ(
        dynamic_factor(amax, 448, kValue),
        amax > 1 && amax < 1e40 ? static_cast<double>(static_cast<float>(448 / amax)) : 448 / amax)
        << amax;
  EXPECT_EQ(dynamic_factor(0x1p-1074, 448, kValue), std::numeric_limits<double>::max());
  EXPECT_EQ(dynamic_factor(std::numeric_limits<double>::max(), 0x1p-60, kValue), 0x1p-1022);
  for (const double amax : {0.0, kNan, kInf}) {
    EXPECT_EQ(dynamic_factor(amax, 448, kPower), 1);
    EXPECT_EQ(dynamic_factor(amax, 448, kValue), 1);
  }
}

TEST(EncodeScaled, FactorsBroadcast) {
  std::vector<double> rows{1, 0.5}, cols{2, 4, 8};
  EXPECT_EQ(
      encoded({1, 1, 1, 1, 1, 1}, {2, 3}, {.each = value_view(rows.data(), DType::f64, {2, 1})}),
      (std::vector<std::uint8_t>{0x38, 0x38, 0x38, 0x30, 0x30, 0x30}));
  EXPECT_EQ(encoded({1, 1, 1, 1, 1, 1}, {2, 3}, {.each = value_view(cols.data(), DType::f64, {3})}),
            (std::vector<std::uint8_t>{0x40, 0x48, 0x50, 0x40, 0x48, 0x50}));
}

TEST(EncodeScaled, BadFactors) {
  for (const double bad : {0.0, -1.0, kNan, kInf}) {
    EXPECT_NE(error_of([&] {
                (void)encoded({1}, {1}, {.value = bad});
              }).find("[encode_scaled] got inv_scale = "),
              std::string::npos)
        << bad;
    std::vector<double> each{1, bad};
    EXPECT_NE(error_of([&] {
                (void)encoded({1, 1}, {2}, {.each = value_view(each.data(), DType::f64, {2})});
              }).find("expected a positive, finite number"),
              std::string::npos)
        << bad;
  }
  std::vector<float> three{1, 2, 3};
  const Factor wrong{.each = value_view(three.data(), DType::f32, {3})};
  EXPECT_NE(error_of([&] {
              (void)encoded({1, 1}, {2}, wrong);
            }).find("does not broadcast to [2]"),
            std::string::npos);
  const Factor nowhere{.each = value_view(nullptr, DType::f32, {2})};
  EXPECT_NE(error_of([&] {
              (void)encoded({1, 1}, {2}, nowhere);
            }).find("inv_scale has 2 elements but no memory"),
            std::string::npos);
  std::vector<std::uint16_t> half{0x3C00};
  const Factor narrow{.each = value_view(half.data(), DType::f16, {1})};
  EXPECT_NE(error_of([&] { (void)encoded({1}, {1}, narrow); }).find("expected float32 or float64"),
            std::string::npos);
}

TEST(EncodeScaled, NothingIsWrittenBeforeAnError) {
  std::vector<float> values{1, static_cast<float>(kNan)};
  std::vector<std::uint8_t> codes{7, 7};
  const View out = code_view(codes.data(), e2m1fn, {2});
  EXPECT_NE(error_of([&] {
              encode_scaled(value_view(values.data(), DType::f32, {2}), out, {.value = 2});
            }).find("NaN"),
            std::string::npos);
  EXPECT_EQ(codes, (std::vector<std::uint8_t>{7, 7}));
  const View same = code_view(values.data(), e4m3fn, {2});
  EXPECT_NE(error_of([&] {
              encode_scaled(value_view(values.data(), DType::f32, {2}), same, {.value = 2});
            }).find("overlap"),
            std::string::npos);
}

TEST(EncodeDynamic, NeedsMemoryForTheFactor) {
  std::vector<float> values{1};
  std::vector<std::uint8_t> codes(1);
  EXPECT_NE(error_of([&] {
              encode_dynamic(value_view(values.data(), DType::f32, {1}),
                             code_view(codes.data(), e4m3fn, {1}), DynamicRule::value, nullptr);
            }).find("got no memory for inv_scale"),
            std::string::npos);
}

}  // namespace
}  // namespace octavo
