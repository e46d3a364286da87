// Tests of the oracle itself: its numbers are compared with tables printed in specifications, with
// the processor's own rounding, and with known answers of the random generator. None of it uses the
// library, but for the last part, which holds the library's limits to the same printed tables.
#include "tests/oracle/oracle.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <random>

#include "octavo/base/philox.h"
#include "octavo/format/decode.h"
#include "octavo/format/parse_format.h"
#include "octavo/round/stochastic.h"
#include "tests/oracle/philox_oracle.h"

namespace oracle {
namespace {

TEST(Oracle, EnumeratesThePrintedTables) {
  for (const PrintedLimits& printed : printed_limits()) {
    const Oracle oracle(row_named(printed.name));
    const std::vector<Meaning>& codes = oracle.meanings();
    int nan = 0, inf = 0, finite = 0;
    double max = 0, smallest = INFINITY;
    for (const Meaning& meaning : codes) {
      nan += meaning.kind == Kind::nan;
      inf += meaning.kind == Kind::inf;
      if (meaning.kind != Kind::number) continue;
      finite += !(meaning.value == 0 && std::signbit(meaning.value));
      max = std::max(max, meaning.value);
      if (meaning.value > 0) smallest = std::min(smallest, meaning.value);
    }
    EXPECT_EQ(max, printed.max) << printed.name;
    EXPECT_EQ(smallest, printed.min_subnormal) << printed.name;
    EXPECT_EQ(codes[printed.max_code].value, printed.max) << printed.name;
    EXPECT_EQ(nan, printed.nan_codes) << printed.name;
    EXPECT_EQ(inf, printed.inf_codes) << printed.name;
    EXPECT_EQ(finite, printed.finite_values) << printed.name;
  }
}

TEST(Oracle, RoundsAsTheSpecificationsSay) {
  const Oracle e4m3fn(row_named("e4m3fn")), e5m2(row_named("e5m2")), fnuz(row_named("e4m3fnuz")),
      scale(row_named("e8m0fnu"));
  const EncodePolicy saturate{}, ieee{.overflow = Overflow::ieee};
  EXPECT_EQ(e4m3fn.encode(464, ieee).code, 0x7Eu);
  EXPECT_EQ(e4m3fn.encode(std::nextafter(464, 500), ieee).code, 0x7Fu);
  EXPECT_EQ(e4m3fn.encode(INFINITY, saturate).code, 0x7Eu);
  EXPECT_EQ(e4m3fn.encode(1.0625 + 0x1p-40, saturate).code, 0x39u);
  EXPECT_EQ(e4m3fn.encode(255, saturate).code, 0x78u);
  EXPECT_EQ(e4m3fn.encode(-0.0, saturate).code, 0x80u);
  EXPECT_EQ(e5m2.encode(61440, ieee).code, 0x7Cu);
  EXPECT_EQ(e5m2.encode(std::nextafter(61440, 0), ieee).code, 0x7Bu);
  EXPECT_EQ(fnuz.encode(-248, ieee).code, 0x80u);
  EXPECT_EQ(scale.encode(3, saturate).code, 128u) << "ties to the even code";
  EXPECT_EQ(scale.encode(1e-300, {.rounding = Rounding::down}).code, 0u);
  EXPECT_TRUE(e4m3fn.encode(0x1p-10, saturate).flushed);
  EXPECT_TRUE(e4m3fn.encode(465, saturate).saturated);
}

// Stochastic variant A from its formula, in plain doubles where they are exact.
TEST(Oracle, RoundsStochasticallyByTheFormula) {
  const Oracle oracle(row_named("e4m3fn"));
  for (int bits = 1; bits <= 16; ++bits) {
    for (int step = 0; step < 64; ++step) {
      const double nu = step / 64.0;
      for (std::uint32_t draw = 0; draw<1u << bits; draw += bits> 8 ? 97 : 1) {
        const EncodePolicy policy{.rounding = Rounding::stochastic, .stochastic_bits = bits};
        const bool away = std::floor(std::ldexp(nu, bits)) + draw >= std::ldexp(1.0, bits);
        ASSERT_EQ(oracle.encode(-(2 + 0.25 * nu), policy, draw).code, 0xC0u + away)
            << bits << " " << nu << " " << draw;
      }
    }
  }
}

#if defined(__aarch64__)
// The processor rounds f64 to f16 once, in four directions, subnormals and overflow included.
TEST(Oracle, AgreesWithTheProcessorOnF16) {
  const Oracle oracle(row_named("e5m10"));
  std::mt19937_64 random(11);
  std::vector<double> values = oracle.landmarks();
  for (int i = 0; i < 200000; ++i)
    values.push_back(
        std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 50) - 80));
  const struct {
    int direction;
    Rounding rounding;
  } directions[] = {{FE_TONEAREST, Rounding::nearest_even},
                    {FE_TOWARDZERO, Rounding::toward_zero},
                    {FE_UPWARD, Rounding::up},
                    {FE_DOWNWARD, Rounding::down}};
  for (const auto& [direction, rounding] : directions) {
    for (const double magnitude : values) {
      for (const double value : {magnitude, -magnitude}) {
        ASSERT_EQ(std::fesetround(direction), 0);
        volatile double in = value;
        volatile __fp16 out = static_cast<__fp16>(in);
        std::fesetround(FE_TONEAREST);
        const __fp16 half = out;
        ASSERT_EQ(oracle.encode(value, {.rounding = rounding, .overflow = Overflow::ieee}).code,
                  std::bit_cast<std::uint16_t>(half))
            << std::hexfloat << value << " direction " << direction;
      }
    }
  }
}
#endif

// kat_vectors of the Random123 distribution, philox4x32 with 10 rounds.
TEST(PhiloxOracle, GivesTheAuthorsKnownAnswers) {
  using Block = std::array<std::uint32_t, 4>;
  struct KnownAnswer {
    Block counter;
    std::array<std::uint32_t, 2> key;
    Block answer;
  };
  const KnownAnswer known[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const KnownAnswer& test : known) {
    EXPECT_EQ(philox(test.counter, test.key), test.answer);
    EXPECT_EQ(octavo::philox4x32(test.counter, test.key[0], test.key[1]), test.answer)
        << "the library's";
  }
}

TEST(PhiloxOracle, DrawsAsTheLibraryDoes) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t seed = random(), index = random() >> (random() % 64);
    const int bits = 1 + static_cast<int>(random() % 16);
    ASSERT_EQ(octavo::stochastic_draw(seed, index, bits), draw(seed, index, bits))
        << seed << " " << index << " " << bits;
  }
}

TEST(LibraryLimits, AreThePrintedOnes) {
  for (const PrintedLimits& printed : printed_limits()) {
    const octavo::Format format = octavo::parse_format(printed.name);
    EXPECT_EQ(octavo::max_value(format), printed.max) << printed.name;
    EXPECT_EQ(octavo::min_normal(format), printed.min_normal) << printed.name;
    EXPECT_EQ(octavo::min_positive(format), printed.min_subnormal) << printed.name;
    EXPECT_EQ(format.max_field(), printed.max_code) << printed.name;
    int nan = 0, inf = 0;
    for (std::uint32_t code = 0; code <= format.code_mask(); ++code) {
      nan += octavo::is_nan(format, code);
      inf += octavo::is_inf(format, code);
    }
    EXPECT_EQ(nan, printed.nan_codes) << printed.name;
    EXPECT_EQ(inf, printed.inf_codes) << printed.name;
  }
}

// The oracle's rows and the library's parser must speak of the same formats.
TEST(LibraryLimits, FieldsOfEveryRow) {
  for (const FormatRow& row : all_rows()) {
    const octavo::Format format = octavo::parse_format(row.name);
    EXPECT_EQ(format.exponent_bits, row.exponent_bits) << row.name;
    EXPECT_EQ(format.mantissa_bits, row.mantissa_bits) << row.name;
    EXPECT_EQ(format.bias, row.bias) << row.name;
    EXPECT_EQ(format.is_signed, row.is_signed) << row.name;
    EXPECT_EQ(format.has_inf, row.top == Top::inf_and_nan) << row.name;
    EXPECT_EQ(format.has_nan(), row.top != Top::all_numbers || row.minus_zero_is_nan) << row.name;
    EXPECT_EQ(format.has_zero, !row.no_zero) << row.name;
    EXPECT_EQ(format.twos_complement, row.integer) << row.name;
  }
}

}  // namespace
}  // namespace oracle
