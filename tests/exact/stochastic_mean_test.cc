// Stochastic rounding does what its name says: the right chance for each neighbour, hence a mean
// that converges to the value. Draws are functions of (seed, index), so every run of these tests
// sees the same ones.
#include "tests/exact/exact_harness.h"

#include "octavo/round/encode.h"

namespace exact {
namespace {

// How many of `count` elements, all equal to `value`, are rounded away from zero.
std::int64_t rounded_away(double value, const Format& format, const EncodePolicy& policy,
                          std::int64_t count, const Kernels* backend) {
  View same = value_view(&value, DType::f64, {count});
  same.strides[0] = 0;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(count));
  encode(as_read_only(same), code_view(codes.data(), format, {count}), policy,
         {.backend = backend});
  EncodePolicy down = policy;
  down.rounding = Rounding::toward_zero;
  const std::uint32_t lower = encode_value(format, value, down).code;
  return count - std::count(codes.begin(), codes.end(), static_cast<std::uint8_t>(lower));
}

// With n bits exactly floor(nu * 2^n) of the 2^n draws round away: counted over all draws, no
// statistics.
TEST(StochasticRounding, HasTheExactChanceOverAllDraws) {
  struct Case {
    const char* format;
    double value;
    double fraction;  // nu
  };
  const Case cases[] = {{"e4m3fn", 1.0 + 0.125 * 0.3, 0.3},
                        {"e4m3fn", -(1.0 + 0.125 * 0.3), 0.3},
                        {"e4m3fn", 0x1p-9 * 0.7, 0.7},
                        {"e4m3fn", 0x1p-9 * 0x1p-20, 0x1p-20},
                        {"e5m2", 40960 + 8192 * 0.999, 0.999},
                        {"e2m1fn", 4 + 2 * 0.25, 0.25},
                        {"mxint8", -(1.0 + 0.4 / 64), 0.4},
                        {"e8m0fnu", 3.25, 0.625},
                        {"e8m7", 1 + 0x1p-7 * 0.123456, 0.123456}};
  for (const Case& test : cases) {
    const Format format = parse_format(test.format);
    for (int bits = 1; bits <= kMaxStochasticBits; ++bits) {
      const EncodePolicy policy{.rounding = Rounding::stochastic, .stochastic_bits = bits};
      const std::uint32_t lower = encode_value(format, test.value, policy, 0).code;
      std::int64_t away = 0;
      for (std::uint32_t draw = 0; draw < 1u << bits; ++draw)
        away += encode_value(format, test.value, policy, draw).code != lower;
      EXPECT_EQ(away, static_cast<std::int64_t>(std::floor(std::ldexp(test.fraction, bits))))
          << test.format << " " << bits;
    }
  }
}

// N draws with chance p round away about N p times. The tolerance is five standard deviations of a
// binomial, 5 sqrt(N p (1 - p)); an ideal generator fails one of the 135 checks with chance 135
// * 5.7e-7 < 1e-4, and the fixed seed makes that one decision for good. The mean's error, gap *
// tolerance / N, shrinks as 1 / sqrt(N).
TEST(StochasticRounding, MeanConverges) {
  for (const int bits : {1, 4, 8, 11, 16}) {
    for (const double fraction : {0.03125, 0.25, 0.5, 0.71875, 0.96875}) {
      for (const std::int64_t count :
           {std::int64_t{1} << 10, std::int64_t{1} << 14, std::int64_t{1} << 18}) {
        EncodePolicy policy{.rounding = Rounding::stochastic, .stochastic_bits = bits};
        policy.seed = 42;
        const double chance = std::floor(std::ldexp(fraction, bits)) / std::ldexp(1.0, bits);
        const double gap = 0.125, value = -(1.0 + gap * fraction);
        const auto away = static_cast<double>(rounded_away(value, e4m3fn, policy, count, nullptr));
        const double expected = static_cast<double>(count) * chance;
        const double tolerance = 5 * std::sqrt(expected * (1 - chance));
        EXPECT_LE(std::abs(away - expected), tolerance)
            << "bits " << bits << " fraction " << fraction << " count " << count;
        // Against the value itself there is the truncation of the chance as well: less than 2^-bits
        // of a gap.
        const double mean = -(1.0 + gap * away / static_cast<double>(count));
        EXPECT_LE(std::abs(mean - value),
                  gap * (std::ldexp(1.0, -bits) + tolerance / static_cast<double>(count)));
      }
    }
  }
}

// Neighbouring elements must not share draws, nor must seeds: a chance of one half gives every
// pattern of eight elements equally often. Chi-square with 255 degrees of freedom has mean 255 and
// deviation sqrt(510) = 22.6; five of those is 368.
TEST(StochasticRounding, NeighboursAreIndependent) {
  for (const std::uint64_t seed :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
    constexpr std::int64_t kCount = 1 << 19;
    double value = 1.0625;
    View same = value_view(&value, DType::f64, {kCount});
    same.strides[0] = 0;
    EncodePolicy policy{.rounding = Rounding::stochastic};
    policy.seed = seed;
    const Tensor codes = encode(same, e4m3fn, policy);
    const std::span<const std::uint8_t> got = codes.span<std::uint8_t>();
    std::vector<double> seen(256);
    for (std::size_t i = 0; i < kCount; i += 8) {
      unsigned pattern = 0;
      for (std::size_t j = 0; j < 8; ++j) pattern |= static_cast<unsigned>(got[i + j] != 0x38) << j;
      ++seen[pattern];
    }
    const double expected = kCount / 8.0 / 256;
    double chi_square = 0;
    for (const double count : seen)
      chi_square += (count - expected) * (count - expected) / expected;
    EXPECT_LT(chi_square, 368) << "seed " << seed;
    EXPECT_GT(chi_square, 142) << "seed " << seed << ": too even to be random";
  }
}

// A call on a part of an array, told where the part begins, gives that part of the whole.
TEST(StochasticRounding, PartsAddUpToTheWhole) {
  constexpr std::int64_t kCount = 10007;
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0f + static_cast<float>(i) / kCount;
  for (const BackendInfo& backend : every_backend()) {
    for (const int bits : {3, 8, 9, 16}) {
      EncodePolicy policy{.rounding = Rounding::stochastic, .stochastic_bits = bits};
      policy.seed = 99;
      policy.first_index =
          (std::uint64_t{1} << 36) - 100;  // the block counter passes 2^32 within the array
      std::vector<std::uint8_t> whole(kCount), parts(kCount);
      encode(std::span<const float>(values), std::span(whole), e4m3fn, policy,
             {.backend = backend.kernels});
      for (std::size_t start = 0; start < kCount; start += 1013) {
        const std::size_t count = std::min<std::size_t>(1013, kCount - start);
        EncodePolicy part = policy;
        part.first_index += start;
        encode(std::span<const float>(values).subspan(start, count),
               std::span(parts).subspan(start, count), e4m3fn, part, {.backend = backend.kernels});
      }
      EXPECT_EQ(parts, whole) << backend.name << " " << bits;
      for (std::size_t i = 0; i < kCount; i += 97) {
        const std::uint32_t random = oracle::draw(policy.seed, policy.first_index + i, bits);
        static const oracle::Oracle kOracle(oracle::row_named("e4m3fn"));
        ASSERT_EQ(whole[i], kOracle.encode(double{values[i]}, policy, random).code)
            << backend.name << " " << bits << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace exact
