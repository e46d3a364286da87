#include "octavo/base/philox.h"

#include <bit>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

namespace octavo {
namespace {

// The known answers that the authors ship with Random123 (tests/kat_vectors, philox4x32 with 10
// rounds), checked by the compiler: the function is a constant expression.
constexpr std::uint32_t kOnes = 0xFFFFFFFFu;
static_assert(philox4x32({0, 0, 0, 0}, 0, 0) ==
              PhiloxBlock{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8});
static_assert(philox4x32({kOnes, kOnes, kOnes, kOnes}, kOnes, kOnes) ==
              PhiloxBlock{0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD});
static_assert(philox4x32({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, 0xA4093822,
                         0x299F31D0) ==
              PhiloxBlock{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1});

// ... and once more by the code that runs.
TEST(Philox, KnownAnswers) {
  volatile std::uint32_t zero = 0;
  const PhiloxBlock pi =
      philox4x32({zero + 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, 0xA4093822, 0x299F31D0);
  EXPECT_EQ(pi, (PhiloxBlock{0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}));
  EXPECT_EQ(philox4x32({zero, 0, 0, 0}, 0, 0),
            (PhiloxBlock{0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}));
}

TEST(Philox, SeedAndCounterFillKeyAndCounterLowWordFirst) {
  EXPECT_EQ(philox4x32(0x299F31D0A4093822u, 0x85A308D3243F6A88u),
            philox4x32({0x243F6A88, 0x85A308D3, 0, 0}, 0xA4093822, 0x299F31D0));
}

TEST(Philox, BlocksOfNeighbouringCountersAndSeedsDiffer) {
  std::set<PhiloxBlock> seen;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    for (std::uint64_t counter = 0; counter < 1000; ++counter)
      seen.insert(philox4x32(seed, counter));
  }
  EXPECT_EQ(seen.size(), 32000u);
}

// Flipping one bit of the counter flips each output bit with chance 1/2: over n = 64 * 200 blocks
// of 128 bits the mean number of flips has deviation sqrt(128 / 4 / n) = 0.05, and six of those are
// allowed.
TEST(Philox, OneCounterBitChangesHalfTheOutput) {
  constexpr int kCounters = 200;
  double flips = 0;
  for (int bit = 0; bit < 64; ++bit) {
    for (std::uint64_t counter = 0; counter < kCounters; ++counter) {
      const PhiloxBlock a = philox4x32(7, counter),
                        b = philox4x32(7, counter ^ (std::uint64_t{1} << bit));
      for (std::size_t word = 0; word < 4; ++word) flips += std::popcount(a[word] ^ b[word]);
    }
  }
  constexpr double kBlocks = 64.0 * kCounters;
  EXPECT_NEAR(flips / kBlocks, 64.0, 6 * std::sqrt(128 / 4 / kBlocks));
}

}  // namespace
}  // namespace octavo
