#include "octavo/base/random_bits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace octavo {
namespace {

TEST(RandomBits, AreNotDrawnTwice) {
  std::set<std::uint64_t> seen;
  std::uint64_t ever = 0, always = ~std::uint64_t{0};
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t bits = random_bits();
    seen.insert(bits);
    ever |= bits;
    always &= bits;
  }
  EXPECT_EQ(seen.size(), 1000U);
  EXPECT_EQ(ever, ~std::uint64_t{0});  // each bit is set at times, and at others it is not
  EXPECT_EQ(always, 0U);
}

}  // namespace
}  // namespace octavo
