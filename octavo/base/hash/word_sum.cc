#include <cstring>

#include "octavo/base/hash/word_sum_internal.h"

namespace octavo {
namespace {

// Two words in each of eight 64-bit lanes, as GCC and Clang have vectors for every processor.
using Lanes = std::uint64_t __attribute__((vector_size(16)));
constexpr std::size_t kVectors = kWordStep / sizeof(Lanes),
                      kStepWords = kWordStep / sizeof(std::uint32_t);

}  // namespace

// Sums of lanes and sums of those sums: with n steps, `after` has word s of a lane n - s times, so
// that its index times it is n times `plain` less that. [0] is of both words of a lane as they lie,
// [1] of the upper one: the lower one is what is left.
std::uint64_t word_steps_sum(std::uint64_t first, const std::byte* bytes, std::size_t steps) {
  Lanes plain[kVectors][2] = {}, after[kVectors][2] = {};
  for (std::size_t step = 0; step < steps; ++step)
    for (std::size_t i = 0; i < kVectors; ++i) {
      Lanes words;
      std::memcpy(&words, bytes + step * kWordStep + i * sizeof words, sizeof words);
      plain[i][0] += words;
      plain[i][1] += words >> 32;
      after[i][0] += plain[i][0];
      after[i][1] += plain[i][1];
    }
  std::uint64_t sum = 0;
  for (std::size_t word = 0; word < kStepWords; ++word) {
    const std::size_t vector = word / 4, lane = word % 4 / 2;
    const auto of_word = [&](const Lanes(&sums)[2]) {
      return word % 2 == 1 ? sums[1][lane] : sums[0][lane] - (sums[1][lane] << 32);
    };
    const std::uint64_t once = of_word(plain[vector]);
    sum +=
        (2 * (first + word) + 1) * once + 2 * kStepWords * (steps * once - of_word(after[vector]));
  }
  return sum;
}

}  // namespace octavo
