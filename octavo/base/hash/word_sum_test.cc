#include "octavo/base/hash/word_sum_internal.h"

#include <gtest/gtest.h>

#include <vector>

namespace octavo {
namespace {

TEST(WordSumTest, EveryWordTimesItsPlace) {
  for (const std::size_t steps : {0U, 1U, 2U, 7U, 100U}) {
    std::vector<std::uint32_t> words(steps * kWordStep / sizeof(std::uint32_t));
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = static_cast<std::uint32_t>(i * 0x9E3779B1U + 0xFFFFFF00U);
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{3}, ~std::uint64_t{0} / 3}) {
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < words.size(); ++i) sum += (2 * (first + i) + 1) * words[i];
      EXPECT_EQ(word_steps_sum(first, reinterpret_cast<const std::byte*>(words.data()), steps), sum)
          << steps << " steps from " << first;
    }
  }
}

}  // namespace
}  // namespace octavo
