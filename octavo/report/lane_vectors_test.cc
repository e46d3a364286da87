// Steps on vectors against plain arithmetic on their elements, and the fast ones against the plain
// ones, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

#include "octavo/format/decode.h"
#include "octavo/format/named_formats.h"
#include "octavo/report/lane_vectors_internal.h"

namespace octavo::lanes {
namespace {

std::uint32_t bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }

// Any finite float, subnormal ones and zeros among them.
class AnyFloats {
 public:
  Floats operator()() {
    Floats out;
    for (int i = 0; i < 4; ++i) {
      std::uint32_t word = static_cast<std::uint32_t>(random_());
      if ((word >> 23 & 0xFF) == 0xFF) word &= 0x807FFFFFU;
      out[i] = __builtin_bit_cast(float, word);
    }
    return out;
  }

 private:
  std::mt19937 random_{7};
};

template <int kMantissa, typename Moved>
void expect_values(const Format& format, const Moved& moved) {
  for (std::uint32_t first = 0; first < 256; first += 16) {
    Bytes codes;
    for (std::uint32_t i = 0; i < 16; ++i) codes[i] = static_cast<std::uint8_t>(first + i);
    const TwoHalves halves = moved(codes);
    const TwoFloats low = widened(halves.low), high = widened(halves.high);
    for (std::uint32_t i = 0; i < 16; ++i) {
      const double wanted = decode(format, first + i);
      if (!std::isfinite(wanted)) continue;  // codes that no finite value becomes
      const Floats& part = i < 4 ? low.low : i < 8 ? low.high : i < 12 ? high.low : high.high;
      EXPECT_EQ(std::ldexp(static_cast<double>(part[i % 4]), 127 - format.bias), wanted)
          << first + i;
      EXPECT_EQ(std::signbit(part[i % 4]), std::signbit(wanted)) << first + i;
    }
  }
}

TEST(LaneVectors, MovedCodesAreTheirValues) {
  expect_values<3>(e4m3fn, [](Bytes codes) { return plain::moved<3>(codes); });
  expect_values<2>(e5m2, [](Bytes codes) { return plain::moved<2>(codes); });
  expect_values<3>(e4m3fn, [](Bytes codes) { return moved<3>(codes); });
  expect_values<2>(e5m2, [](Bytes codes) { return moved<2>(codes); });
}

TEST(LaneVectors, MovedCodesAreTheSameEitherWay) {
  for (std::uint32_t first = 0; first < 256; first += 16) {
    Bytes codes;
    for (std::uint32_t i = 0; i < 16; ++i) codes[i] = static_cast<std::uint8_t>(first + i);
    const TwoHalves three[2] = {plain::moved<3>(codes), moved<3>(codes)},
                    two[2] = {plain::moved<2>(codes), moved<2>(codes)};
    EXPECT_EQ(std::memcmp(&three[0], &three[1], sizeof(TwoHalves)), 0);
    EXPECT_EQ(std::memcmp(&two[0], &two[1], sizeof(TwoHalves)), 0);
  }
}

TEST(LaneVectors, DistanceIsThatOfTheElements) {
  AnyFloats any;
  for (int round = 0; round < 10000; ++round) {
    const Floats a = any(), b = any(), fast = distance(a, b), slow = plain::distance(a, b);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(bits(fast[i]), bits(std::fabs(a[i] - b[i])));
      EXPECT_EQ(bits(slow[i]), bits(fast[i]));
    }
  }
}

TEST(LaneVectors, SquaresAreAddedAlike) {
  AnyFloats any;
  for (int round = 0; round < 10000; ++round) {
    Floats sum = any();
    for (int i = 0; i < 4; ++i) sum[i] = std::fabs(sum[i]);
    const Floats x = any(), fast = add_square(sum, x), slow = plain::add_square(sum, x);
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(bits(fast[i]), bits(slow[i]));
      // One rounding or two: within two units in the last place of what f64 says, where that is an
      // f32 at all.
      const double exact = static_cast<double>(sum[i]) + static_cast<double>(x[i]) * x[i];
      if (exact > 1e38 || exact < 1e-30) continue;
      EXPECT_NEAR(static_cast<double>(fast[i]), exact, exact * 0x1p-22);
    }
  }
}

}  // namespace
}  // namespace octavo::lanes
