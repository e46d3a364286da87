#include "octavo/format/parse_format.h"

#include <gtest/gtest.h>

#include <set>

#include "octavo/base/error.h"

namespace octavo {
namespace {

std::string error_of(std::string_view name) {
  try {
    (void)parse_format(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << name;
    return error.what();
  }
  return "";
}

TEST(ParseFormat, NamedFormatsAndTheirFields) {
  std::set<std::string_view> names;
  for (const NamedFormat& named : kNamedFormats) {
    EXPECT_EQ(parse_format(named.name), named.format) << named.name;
    EXPECT_EQ(format_name(named.format), named.name);
    EXPECT_EQ(format_problem(named.format), std::nullopt) << named.name;
    EXPECT_FALSE(named.note.empty());
    EXPECT_TRUE(names.insert(named.name).second) << named.name << " twice";
  }
}

TEST(ParseFormat, NamesOfOtherLibraries) {
  EXPECT_EQ(parse_format("float8_e4m3fn"), e4m3fn);
  EXPECT_EQ(parse_format("torch.float8_e5m2"), e5m2);
  EXPECT_EQ(parse_format("float8_e4m3b11fnuz"), e4m3b11fnuz);
  EXPECT_EQ(parse_format("float8_e8m0fnu"), e8m0fnu);
  EXPECT_EQ(parse_format("float6_e2m3fn"), e2m3fn);
  EXPECT_EQ(parse_format("float4_e2m1fn"), e2m1fn);
  EXPECT_EQ(parse_format("E4M3FN"), e4m3fn);
  EXPECT_EQ(parse_format("MXINT8"), mxint8);
  EXPECT_EQ(parse_format("int8"), int8);
  EXPECT_EQ(format_name(int8), "int8");
  EXPECT_EQ(parse_format("INT4"), int4);
  EXPECT_EQ(format_name(int4), "int4");
}

TEST(ParseFormat, SuffixesMeanWhatTheySay) {
  const Format ieee = parse_format("e3m3");
  EXPECT_TRUE(ieee.has_inf && ieee.nan == Nan::ieee && ieee.bias == 3 && ieee.bits() == 7);
  EXPECT_EQ(parse_format("e5m10").bits(), 16);
  EXPECT_EQ(parse_format("e4m3fn").nan, Nan::all_ones);
  EXPECT_EQ(parse_format("e3m3fn").nan, Nan::none) << "seven bits: no NaN";
  EXPECT_EQ(parse_format("e5m3fnu").nan, Nan::all_ones);
  EXPECT_FALSE(parse_format("e5m3fnu").is_signed);
  EXPECT_TRUE(parse_format("e5m3fnu").has_zero);
  EXPECT_FALSE(parse_format("e5m0fnu").has_zero);
  EXPECT_TRUE(parse_format("e5m0fn").has_zero);
  EXPECT_EQ(parse_format("e4m3fnuz").bias, 8) << "one zero: bias 2^(E-1)";
  EXPECT_EQ(parse_format("e4m3b-2").bias, -2);
  EXPECT_EQ(parse_format("e4m3b11fnuz").bias, 11);
}

// Every ExMy, every suffix, many biases: a name either gives a format that prints and parses back
// to itself, or an error.
TEST(ParseFormat, EveryNameComesBackOrIsRefused) {
  int good = 0, bad = 0;
  for (int exponent = 0; exponent <= 17; ++exponent) {
    for (int mantissa = 0; mantissa <= 17; ++mantissa) {
      for (const char* suffix : {"", "fn", "fnuz", "fnu"}) {
        for (const char* bias :
             {"", "b0", "b1", "b7", "b127", "b-3", "b1000", "b1023", "b-1000", "b9999", "b-9999"}) {
          const std::string name = text('e', exponent, 'm', mantissa, bias, suffix);
          Format format;
          try {
            format = parse_format(name);
          } catch (const Error& error) {
            ++bad;
            ASSERT_NE(std::string(error.what()).find("'" + name + "' is not a format: "),
                      std::string::npos)
                << error.what();
            continue;
          }
          ++good;
          ASSERT_EQ(format_problem(format), std::nullopt) << name;
          ASSERT_EQ(format.exponent_bits, exponent) << name;
          ASSERT_EQ(format.mantissa_bits, mantissa) << name;
          ASSERT_EQ(parse_format(format_name(format)), format)
              << name << " prints as " << format_name(format);
          if (*bias == '\0') {
            ASSERT_EQ(format_name(format), name);
          }
          ASSERT_EQ(parse_format(text("float", format.bits(), "_", name)), format) << name;
        }
      }
    }
  }
  EXPECT_GT(good, 2000);
  EXPECT_GT(bad, 2000);
}

TEST(ParseFormat, FixedPointIsAnInteger) {
  const Format seven = parse_format("e0m7");
  EXPECT_TRUE(seven.is_fixed_point() && seven.is_signed && seven.nan == Nan::none &&
              !seven.has_inf);
  EXPECT_EQ(seven.min_step_exponent(), mxint8.min_step_exponent());
  EXPECT_EQ(seven.max_field(), 127u);
  EXPECT_FALSE(parse_format("e0m8fnu").is_signed);
  EXPECT_EQ(parse_format("e0m3b2").min_step_exponent(), -4);
}

TEST(ParseFormat, SaysWhyANameIsRefused) {
  const auto says = [](std::string_view name, std::string_view words) {
    const std::string message = error_of(name);
    EXPECT_EQ(message.substr(0, 9), "[format] ") << name;
    EXPECT_NE(message.find(words), std::string::npos) << name << ": " << message;
  };
  says("", "expected e<E>m<M>");
  says("fp8", "expected e<E>m<M>");
  says("e4", "expected e<E>m<M>");
  says("e4m", "expected e<E>m<M>");
  says("em3", "expected e<E>m<M>");
  says("e4m3x", "expected e<E>m<M>");
  says("e4m3fnx", "expected e<E>m<M>");
  says("e4m3fnfn", "expected e<E>m<M>");
  says(" e4m3fn", "expected e<E>m<M>");
  says("e4m3fn ", "expected e<E>m<M>");
  says("e-4m3", "expected e<E>m<M>");
  says("e4m3b", "expected e<E>m<M>");
  says("e4m3b-", "expected e<E>m<M>");
  says("float_e4m3", "expected e<E>m<M>");
  says("mxint4", "expected e<E>m<M>");
  says("e0m7fn", "fixed point (e0) has no Inf or NaN to leave out");
  says("e0m7fnuz", "fixed point (e0) has no Inf or NaN to leave out");
  says("e0m0", "1 bits, and a format has 2 to 16");
  says("e8m8", "17 bits, and the most is 16");
  says("e99999999999m3", "expected e<E>m<M>");
  says("e4m99999999999", "expected e<E>m<M>");
  says("float8_e5m3", "says 8 bits, but its fields add up to 9");
  says("float6_e4m3fn", "says 6 bits, but its fields add up to 8");
  says("e12m2", "12 exponent bits reach beyond a double");
  says("e4m0", "use the suffix fn");
  says("e4m3b2000", "beyond the range of a double");
  says("e4m3b-2000", "beyond the range of a double");
}

TEST(ParseFormat, HostileNamesGiveShortCleanMessages) {
  const std::string large(100000, 'e');
  EXPECT_LT(error_of(large).size(), 250u);
  const std::string named_and_more = "e4m3fn" + std::string(100, 'n');
  EXPECT_FALSE(error_of(named_and_more).empty());
  const std::string padded = "e4m3fn" + std::string(58, ' ') + "x";
  EXPECT_FALSE(error_of(padded).empty());
  const std::string dirty("e4\0m3\n\x1b[31m\xff", 12);
  for (const char c : error_of(dirty)) EXPECT_TRUE(c >= ' ' && c <= '~') << static_cast<int>(c);
  EXPECT_FALSE(error_of(std::string_view("e4m3fn\0", 7)).empty())
      << "a zero byte is not the end of a name";
}

// Two names, one format: the canonical name is the shorter.
TEST(FormatName, LeavesOutWhatIsUsual) {
  EXPECT_EQ(format_name(parse_format("e4m3b7fn")), "e4m3fn");
  EXPECT_EQ(format_name(parse_format("e4m3b8fnuz")), "e4m3fnuz");
  EXPECT_EQ(format_name(parse_format("e5m2b16fnuz")), "e5m2fnuz");
  EXPECT_EQ(format_name(parse_format("e6m9b30")), "e6m9b30");
  EXPECT_EQ(format_name(parse_format("e04m03fn")), "e4m3fn");
}

// Each rule of format_problem, broken alone.
TEST(FormatProblem, NamesTheBrokenRule) {
  const auto problem = [](Format format, std::string_view words) {
    const std::string got = format_problem(format).value_or("nothing");
    EXPECT_NE(got.find(words), std::string::npos) << got;
  };
  problem({}, "bits, and a format has 2 to 16");
  problem({.exponent_bits = 200, .mantissa_bits = 200}, "401 bits");
  problem({.exponent_bits = 0, .mantissa_bits = 4, .nan = Nan::all_ones}, "fixed point has no Inf");
  problem({.exponent_bits = 0, .mantissa_bits = 4, .has_zero = false}, "begins with zero");
  problem({.exponent_bits = 0, .mantissa_bits = 4, .bias = 1100}, "beyond the range of a double");
  problem({.exponent_bits = 12, .mantissa_bits = 0, .bias = 2047, .nan = Nan::all_ones},
          "12 exponent bits");
  problem(
      {.exponent_bits = 4, .mantissa_bits = 3, .bias = 7, .has_inf = true, .nan = Nan::all_ones},
      "Inf and IEEE NaNs");
  problem({.exponent_bits = 4, .mantissa_bits = 3, .bias = 7, .nan = Nan::ieee},
          "Inf and IEEE NaNs");
  problem({.exponent_bits = 4, .mantissa_bits = 0, .bias = 7, .has_inf = true, .nan = Nan::ieee},
          "no code for NaN");
  problem({.exponent_bits = 4, .mantissa_bits = 3, .bias = 7}, "one NaN magnitude");
  problem({.exponent_bits = 2, .mantissa_bits = 1, .bias = 1, .nan = Nan::all_ones}, "none below");
  problem({.exponent_bits = 4,
           .mantissa_bits = 3,
           .bias = 7,
           .is_signed = false,
           .nan = Nan::negative_zero},
          "minus zero");
  problem({.exponent_bits = 4,
           .mantissa_bits = 3,
           .bias = 7,
           .has_subnormals = false,
           .nan = Nan::all_ones},
          "come together");
  problem({.exponent_bits = 4,
           .mantissa_bits = 3,
           .bias = 7,
           .has_zero = false,
           .has_subnormals = false,
           .nan = Nan::all_ones},
          "leave out zero");
  problem({.exponent_bits = 4, .mantissa_bits = 3, .bias = 1100, .nan = Nan::all_ones},
          "range of a double");
  problem({.exponent_bits = 4, .mantissa_bits = 3, .bias = -1100, .nan = Nan::all_ones},
          "range of a double");
  problem({.exponent_bits = 0, .mantissa_bits = 3, .twos_complement = true}, "mxint8");
  problem({.exponent_bits = 0, .mantissa_bits = 7, .bias = -5, .twos_complement = true}, "int8");
}

}  // namespace
}  // namespace octavo
