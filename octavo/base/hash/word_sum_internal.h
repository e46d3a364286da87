// The inner loop of a checksum: words of 32 bits, each times an odd number that its place has.
#pragma once

#include <cstddef>
#include <cstdint>

namespace octavo {

inline constexpr std::size_t kWordStep = 64;  // bytes that are added at a time

// The sum of (2 i + 1) * word i modulo 2^64, of little-endian words from word `first` on.
[[nodiscard]] std::uint64_t word_steps_sum(std::uint64_t first, const std::byte* bytes,
                                           std::size_t steps);

}  // namespace octavo
