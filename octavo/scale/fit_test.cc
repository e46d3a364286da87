// What the policies that search are defined by: ranks, candidates, and the order of a sum of
// squares.
#include "octavo/scale/fit.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace octavo {
namespace {

constexpr ScaleSpec kTwoLevels{.format = ScaleFormat::e4m3_f32};

std::vector<std::uint32_t> codes_of(float amax) {
  std::vector<std::uint32_t> out;
  for (int i = 0; i < fit_candidates(AmaxPolicy::mse, kTwoLevels); ++i)
    out.push_back(fit_candidate(AmaxPolicy::mse, kTwoLevels, e2m1fn, amax, 1.0F, 0.0F, i).bits);
  return out;
}

TEST(FitCandidates, AreTheCodeOfTheAmaxAndThoseFromTwoBelowToSixAbove) {
  // 6 times 1.0, whose code is 0x38.
  EXPECT_EQ(codes_of(6.0F),
            (std::vector<std::uint32_t>{0x38, 0x36, 0x37, 0x39, 0x3A, 0x3B, 0x3C, 0x3D, 0x3E}));
  const TileScale next = fit_candidate(AmaxPolicy::mse, kTwoLevels, e2m1fn, 6.0F, 0.5F, 0.0F, 3);
  // The amax over 6 and over 0.5 is 2, code 0x40; one above it is 2.25.
  EXPECT_EQ(next.bits, 0x41u);
  EXPECT_EQ(next.scale, 2.25F * 0.5F);
  EXPECT_EQ(next.factor, 1.0F / (2.25F * 0.5F));
}

TEST(FitCandidates, CodesEndWhereE4m3Does) {
  // The largest code again and again, which as the first of equals changes nothing.
  EXPECT_EQ(codes_of(6.0F * 448.0F),
            (std::vector<std::uint32_t>{126, 124, 125, 126, 126, 126, 126, 126, 126}));
  EXPECT_EQ(codes_of(6.0F * 0x1p-9F), (std::vector<std::uint32_t>{1, 1, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(codes_of(1e-30F), (std::vector<std::uint32_t>{1, 1, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(FitCandidates, OfFourOverSixAreTheAmaxAndThreeHalvesOfIt) {
  constexpr AmaxPolicy kPolicy = AmaxPolicy::four_over_six;
  ASSERT_EQ(fit_candidates(kPolicy, kTwoLevels), 2);
  EXPECT_EQ(fit_candidate(kPolicy, kTwoLevels, e2m1fn, 6.0F, 1.0F, 0.0F, 0).scale, 1.0F);
  EXPECT_EQ(fit_candidate(kPolicy, kTwoLevels, e2m1fn, 6.0F, 1.0F, 0.0F, 1).scale, 1.5F);
  EXPECT_EQ(fit_candidate(kPolicy, kTwoLevels, e2m1fn, kMaxFloat, 1e36F, 0.0F, 1).scale,
            fit_candidate(kPolicy, kTwoLevels, e2m1fn, kMaxFloat, 1e36F, 0.0F, 0).scale);
}

// 256 times 6 is the amax: its own code is that of 256, and all that may be tried is below 448.
TEST(FitCandidates, HaveRoomAboveTheTensorsAmax) {
  ScaleSpec spec = kTwoLevels;
  spec.context.tensor_top = tensor_top_of(AmaxPolicy::mse);
  const float amax = 3.7F, t = tensor_scale_of(spec, e2m1fn, amax);
  const auto bits = [&](AmaxPolicy policy, int i) {
    return fit_candidate(policy, spec, e2m1fn, amax, t, amax, i).bits;
  };
  EXPECT_EQ(bits(AmaxPolicy::mse, 0), encode<e4m3fn>(256.0));
  EXPECT_EQ(bits(AmaxPolicy::mse, 8), encode<e4m3fn>(448.0));
  EXPECT_EQ(bits(AmaxPolicy::four_over_six, 1), encode<e4m3fn>(384.0));
  spec.context.tensor_top = tensor_top_of(AmaxPolicy::max);
  EXPECT_EQ(tensor_scale_of(spec, e2m1fn, amax), amax / 2688.0F);
}

TEST(FitCandidates, OfModelOptsSweepAreAllCodes) {
  constexpr AmaxPolicy kPolicy = AmaxPolicy::modelopt_sweep;
  ASSERT_EQ(fit_candidates(kPolicy, kTwoLevels), 126);
  // Three roundings away from 2^-9: ModelOpt divides by 448 first.
  const float least = fit_candidate(kPolicy, kTwoLevels, e2m1fn, 1.0F, 0.0F, 2688.0F, 0).factor;
  EXPECT_NEAR(least, 0x1p-9F, 3 * 0x1p-33F);
  EXPECT_EQ(fit_candidate(kPolicy, kTwoLevels, e2m1fn, 1.0F, 0.0F, 2688.0F, 125).factor, 448.0F);
  EXPECT_EQ(fit_candidate(kPolicy, kTwoLevels, e2m1fn, 1.0F, 0.0F, 0.0F, 7).factor, 1.0F);
  EXPECT_TRUE(is_searched(kPolicy, kTwoLevels, 0.0F));
  EXPECT_FALSE(is_searched(kPolicy, kTwoLevels, HUGE_VALF));
}

TEST(FitCandidates, PowersOfTwoAreThoseAroundTheAmaxWhateverTheRule) {
  for (const ScaleRule rule :
       {ScaleRule::rceil, ScaleRule::floor, ScaleRule::ceil, ScaleRule::even}) {
    const ScaleSpec spec{.format = ScaleFormat::e8m0, .rule = rule};
    ASSERT_EQ(fit_candidates(AmaxPolicy::mse, spec), 2);
    const auto byte = [&](float amax, int i) {
      return static_cast<int>(
                 fit_candidate(AmaxPolicy::mse, spec, e2m1fn, amax, 1.0F, 0.0F, i).bits) -
             127;
    };
    // 2^(floor(log2 amax) - 2), and twice that where the amax is from 7 of it on: E2M1 ends at
    // 1.5 * 2^2, half a step below 7.
    for (const float amax : {8.0F, 9.0F, 12.0F, 13.999F}) {
      EXPECT_EQ(byte(amax, 0), 1) << amax;
      EXPECT_EQ(byte(amax, 1), 1) << amax;
    }
    for (const float amax : {14.0F, 14.5F, 15.999F}) {
      EXPECT_EQ(byte(amax, 0), 1) << amax;
      EXPECT_EQ(byte(amax, 1), 2) << amax;
    }
    EXPECT_EQ(byte(0x1p-140F, 0), -127);  // e8m0 begins there
    EXPECT_EQ(byte(0x1p-140F, 1), -127);
    EXPECT_EQ(byte(kMaxFloat, 0), 125);
    EXPECT_EQ(byte(kMaxFloat, 1), 126);  // 2^128 itself is no f32
    EXPECT_EQ(byte(0x1p127F, 1), 125);
  }
}

TEST(FitCandidates, QuotientsAreOfSixteenthsOfTheAmax) {
  const ScaleSpec spec;
  ASSERT_EQ(fit_candidates(AmaxPolicy::mse, spec), 22);
  EXPECT_EQ(fit_amax(spec, e4m3fn, 32.0F, 0).amax, 32.0F);
  std::vector<float> amaxes;
  for (int i = 1; i < 22; ++i) amaxes.push_back(fit_amax(spec, e4m3fn, 32.0F, i).amax);
  std::vector<float> wanted;
  for (int sixteenths = 6; sixteenths <= 27; ++sixteenths)
    if (sixteenths != 16) wanted.push_back(2.0F * static_cast<float>(sixteenths));
  EXPECT_EQ(amaxes, wanted);
  EXPECT_EQ(fit_amax(spec, e4m3fn, kMaxFloat, 21).amax, kMaxFloat);
  // Never zero, which would stand for a tile of zeros.
  EXPECT_EQ(fit_amax(spec, e4m3fn, 0x1p-149F, 1).amax, 0x1p-149F);
}

TEST(FitCandidates, OnlyForAmaxesThatAreNumbersAndLargeEnough) {
  ScaleSpec spec;
  EXPECT_TRUE(is_searched(AmaxPolicy::mse, spec, 0x1p-149F));
  EXPECT_FALSE(is_searched(AmaxPolicy::mse, spec, 0.0F));
  EXPECT_FALSE(is_searched(AmaxPolicy::mse, spec, HUGE_VALF));
  EXPECT_FALSE(is_searched(AmaxPolicy::mse, spec, std::numeric_limits<float>::quiet_NaN()));
  spec.min_amax = 0.5F;
  EXPECT_TRUE(is_searched(AmaxPolicy::mse, spec, 0.5F));
  EXPECT_FALSE(is_searched(AmaxPolicy::mse, spec, 0.25F));
}

// Squares of 2^12 and of 1: 2^24 + 1 is no f32, 2^24 + 2 is. So a sum shows what was added to what.
TEST(FitRun, AddsInTheOrderThatIsDocumented) {
  const auto sum_with_ones_at = [](int a, int b) {
    FitRun<float> run;
    for (int i = 0; i < 16; ++i) run.add(i, i == 0 ? 0x1p12F : i == a || i == b ? 1.0F : 0.0F);
    return run.sum();
  };
  EXPECT_EQ(sum_with_ones_at(8, 4), 0x1p24);       // 0 + 8, then + 4
  EXPECT_EQ(sum_with_ones_at(8, 1), 0x1p24);       // 0 + 8, then + 1
  EXPECT_EQ(sum_with_ones_at(4, 12), 0x1p24 + 2);  // 4 + 12 first
  EXPECT_EQ(sum_with_ones_at(1, 9), 0x1p24 + 2);   // 1 + 9
  EXPECT_EQ(sum_with_ones_at(2, 3), 0x1p24 + 2);   // 2 + 3
  EXPECT_EQ(sum_with_ones_at(1, 2), 0x1p24);       // 0 + 1, then + 2
  FitRun<float> run;                               // 0 + 16 + 32 in one sum
  run.add(0, 0x1p12F);
  run.add(16, 1.0F);
  run.add(32, 1.0F);
  EXPECT_EQ(run.sum(), 0x1p24);
}

TEST(FitRun, WeighsSquares) {
  FitRun<float> run;
  run.add(0, 3.0F, 0.5F);
  run.add(1, 2.0F, 4.0F);
  EXPECT_EQ(run.sum(), 4.5 + 16.0);
}

TEST(FitError, IsInUnitsOfTheScaleSquared) {
  EXPECT_EQ(fit_error(AmaxPolicy::mse, 3.0, 0.5F), 0.75);
  EXPECT_EQ(fit_error(AmaxPolicy::mse, 1.0, 0x1p-126F), 0x1p-252);
  EXPECT_EQ(fit_error(AmaxPolicy::mse, 0x1p127, kMaxFloat) < HUGE_VAL, true);
  EXPECT_FALSE(fit_error(AmaxPolicy::mse, 1.0, std::numeric_limits<float>::quiet_NaN()) < HUGE_VAL);
}

// p / 100 n is 55.00000000000001 for 55 % of 100, whose ceiling is the 56th value.
TEST(Percentile, IsTheCeilingOfTheDecimalThatWasWritten) {
  EXPECT_EQ(percentile_rank(100, 55.0), 54);
  EXPECT_EQ(percentile_rank(100, 7.0), 6);
  EXPECT_EQ(percentile_rank(1000, 99.9), 998);
  EXPECT_EQ(percentile_rank(41000, 99.9), 40958);  // 99.9 * 41000 / 100 is above 40959 as a double
  EXPECT_EQ(percentile_rank(41001, 99.9), 40959);
  EXPECT_EQ(percentile_rank(1, 1e-300), 0);
  EXPECT_EQ(percentile_rank(100, 0.001), 0);
  EXPECT_EQ(percentile_rank(100, 100.0), 99);
  // Every tenth of a per cent, in integers.
  for (std::int64_t tenths = 1; tenths <= 1000; ++tenths) {
    const double p = static_cast<double>(tenths) / 10.0;  // the double nearest to the decimal
    for (std::int64_t n = 1; n <= 3000; ++n)
      ASSERT_EQ(percentile_rank(n, p), (tenths * n + 999) / 1000 - 1) << p << " % of " << n;
  }
}

TEST(Percentile, DigitsOfARankAreFoundFromTheTop) {
  const std::vector<float> values{0.5F, 3.0F, 0.0F, 3.0F, 1e-40F, 7.0F, 1e30F};
  const std::vector<float> sorted{0.0F, 1e-40F, 0.5F, 3.0F, 3.0F, 7.0F, 1e30F};
  for (std::int64_t wanted = 0; wanted < 7; ++wanted) {
    RankDigit digit;
    std::int64_t rank = wanted;
    for (; digit.shift >= 0; digit.shift -= kRankDigitBits) {
      std::vector<std::int64_t> counts(kRankDigits);
      for (const float x : values) {
        const auto bits = std::bit_cast<std::uint32_t>(x);
        if (has_prefix(digit, bits)) ++counts[digit_of(digit, bits)];
      }
      digit.prefix |= digit_of_rank(counts.data(), rank) << digit.shift;
    }
    EXPECT_EQ(std::bit_cast<float>(digit.prefix), sorted[static_cast<std::size_t>(wanted)]);
  }
}

}  // namespace
}  // namespace octavo
