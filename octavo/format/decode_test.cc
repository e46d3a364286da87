#include "octavo/format/decode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "octavo/format/named_formats.h"
#include "octavo/format/parse_format.h"

namespace octavo {
namespace {

// The values that OFP8, MX and the makers of the other formats print, at compile time: the scalar
// code is constexpr.
static_assert(decode<e4m3fn>(0x38) == 1.0 && decode<e4m3fn>(0xC0) == -2.0 &&
              decode<e4m3fn>(0x44) == 3.0);
static_assert(max_value(e4m3fn) == 448 && lowest_value(e4m3fn) == -448 &&
              min_normal(e4m3fn) == 0x1p-6 && min_positive(e4m3fn) == 0x1p-9);
static_assert(max_value(e5m2) == 57344 && min_normal(e5m2) == 0x1p-14 &&
              min_positive(e5m2) == 0x1p-16);
static_assert(max_value(e4m3fnuz) == 240 && min_positive(e4m3fnuz) == 0x1p-10);
static_assert(max_value(e5m2fnuz) == 57344 && min_positive(e5m2fnuz) == 0x1p-17);
static_assert(max_value(e4m3b11fnuz) == 30 && min_positive(e4m3b11fnuz) == 0x1p-13);
static_assert(max_value(e4m3) == 240 && max_value(e3m4) == 15.5 && min_positive(e3m4) == 0x1p-6);
static_assert(max_value(e8m0fnu) == 0x1p127 && lowest_value(e8m0fnu) == 0x1p-127 &&
              min_positive(e8m0fnu) == 0x1p-127);
static_assert(max_value(e3m2fn) == 28 && max_value(e2m3fn) == 7.5 && max_value(e2m1fn) == 6);
static_assert(max_value(mxint8) == 127.0 / 64 && lowest_value(mxint8) == -2 &&
              min_positive(mxint8) == 1.0 / 64);
static_assert(max_value(int8) == 127 && lowest_value(int8) == -128 && min_positive(int8) == 1 &&
              epsilon(int8) == 1 && int8.bits() == 8 && !int8.has_negative_zero());
static_assert(max_value(int4) == 7 && lowest_value(int4) == -8 && min_positive(int4) == 1 &&
              int4.bits() == 4 && !int4.is_byte_integer() && int8.is_byte_integer());
static_assert(epsilon(e4m3fn) == 0.125 && epsilon(e5m2) == 0.25 && epsilon(mxint8) == 1.0 / 64);
static_assert(is_nan(e4m3fn, 0x7F) && is_nan(e4m3fn, 0xFF) && !is_nan(e4m3fn, 0x7E) &&
              !is_inf(e4m3fn, 0x7F));
static_assert(is_inf(e5m2, 0x7C) && is_inf(e5m2, 0xFC) && is_nan(e5m2, 0x7D) &&
              !is_nan(e5m2, 0x7C));
static_assert(is_nan(e4m3fnuz, 0x80) && !is_nan(e4m3fnuz, 0x00) && !is_nan(e4m3fnuz, 0xFF));
static_assert(is_nan(e8m0fnu, 0xFF) && !is_nan(e8m0fnu, 0x00));

// A format is usable as a template argument, and all its derived numbers are constants.
static_assert(e4m3fn.bits() == 8 && e2m1fn.bits() == 4 && e3m2fn.bits() == 6 &&
              e8m0fnu.bits() == 8 && mxint8.bits() == 8);
static_assert(e4m3fn.code_bytes() == 1 &&
              Format{.exponent_bits = 5, .mantissa_bits = 10, .bias = 15}.code_bytes() == 2);
static_assert(e4m3fn.has_negative_zero() && !e4m3fnuz.has_negative_zero() &&
              !mxint8.has_negative_zero() && !e8m0fnu.has_negative_zero());

TEST(Decode, SmallFormatsInFull) {
  const double fp4[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::uint32_t code = 0; code < 16; ++code) {
    const double value = decode(e2m1fn, code);
    EXPECT_EQ(std::fabs(value), fp4[code % 8]);
    EXPECT_EQ(std::signbit(value), code >= 8);
    EXPECT_EQ(decode(int4, code), static_cast<int>(code) - (code < 8 ? 0 : 16));
  }
  for (std::uint32_t code = 0; code < 256; ++code) {
    EXPECT_EQ(decode(mxint8, code), static_cast<std::int8_t>(code) / 64.0);
    EXPECT_EQ(decode(int8, code), static_cast<std::int8_t>(code));
    if (code < 255) {
      EXPECT_EQ(decode(e8m0fnu, code), std::ldexp(1.0, static_cast<int>(code) - 127));
    }
  }
}

TEST(Decode, SignsOfZeroInfAndNan) {
  EXPECT_TRUE(std::signbit(decode(e4m3fn, 0x80)));
  EXPECT_EQ(decode(e5m2, 0xFC), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(decode(e4m3fn, 0xFF)) && std::signbit(decode(e4m3fn, 0xFF)));
  EXPECT_TRUE(std::isnan(decode(e4m3fnuz, 0x80)) && !std::signbit(decode(e4m3fnuz, 0x80)));
  EXPECT_FALSE(std::signbit(decode(mxint8, 0)));
}

// decode ignores the bits above a code: an unpacked FP4 in a byte may have anything there.
TEST(Decode, IgnoresHigherBits) {
  EXPECT_EQ(decode(e2m1fn, 0xF2), 1.0);
  EXPECT_EQ(decode(e4m3fn, 0xABCD38), 1.0);
  EXPECT_EQ(decode(int4, 0xFD), -3.0);
  EXPECT_EQ(decode(int4, 0xF3), 3.0);
}

// "The next larger value is always the next integer" (format.h), for every format there is.
TEST(Decode, MagnitudesCountUpwards) {
  for (int exponent = 1; exponent <= 11; ++exponent) {
    for (int mantissa = 0; exponent + mantissa <= 15; ++mantissa) {
      for (const char* suffix : {"", "fn", "fnuz", "fnu"}) {
        const std::string name =
            "e" + std::to_string(exponent) + "m" + std::to_string(mantissa) + suffix;
        Format format;
        try {
          format = parse_format(name);
        } catch (const std::exception&) {
          continue;  // parse_format_test.cc says which
        }
        double previous = format.has_zero ? -1.0 : 0.0;
        for (std::uint32_t field = 0; field <= format.max_field(); ++field) {
          const double value = decode(format, field);
          ASSERT_TRUE(std::isfinite(value)) << name << " " << field;
          ASSERT_GT(value, previous) << name << " " << field;
          if (format.is_signed && field > 0) {
            ASSERT_EQ(decode(format, field | format.sign_mask()), -value) << name << " " << field;
          }
          previous = value;
        }
        ASSERT_EQ(previous, max_value(format)) << name;
        for (std::uint32_t field = format.max_field() + 1; field <= format.magnitude_mask();
             ++field) {
          ASSERT_TRUE(is_nan(format, field) != is_inf(format, field)) << name << " " << field;
        }
      }
    }
  }
}

TEST(Decode, PowersOfTwo) {
  for (int exponent = -1074; exponent <= 1023; ++exponent)
    EXPECT_EQ(power_of_two(exponent), std::ldexp(1.0, exponent));
}

}  // namespace
}  // namespace octavo
