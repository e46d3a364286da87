#include <algorithm>
#include <array>
#include <cstring>

#include "octavo/base/hash/row_hash_internal.h"

namespace octavo {
namespace {

// Lanes in four vectors, as GCC and Clang have them for every processor, and two rows at once: one
// vector alone would wait for its own products.
using Words = std::uint32_t __attribute__((vector_size(16)));
constexpr std::size_t kHashVectors = 4, kHashStep = kHashVectors * sizeof(Words);

std::uint64_t finish_hash(std::uint64_t h) {
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93ULL;
  h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93ULL;
  return h ^ (h >> 32);
}

Words mix(Words lanes, const std::byte* from) {
  constexpr std::uint32_t kPrime = 0x9E3779B1U;
  Words words;
  std::memcpy(&words, from, sizeof words);
  lanes = (lanes ^ words) * kPrime;
  return lanes ^ (lanes >> 15);
}

// The sum of kRows rows' hashes.
template <std::size_t kRows>
std::uint64_t rows_sum(const std::byte* rows, std::size_t size, std::int64_t first_row) {
  Words lanes[kRows][kHashVectors];
  for (auto& of_row : lanes)
    for (std::uint32_t i = 0; i < kHashVectors; ++i) of_row[i] = Words{1, 2, 3, 4} + 4 * i;
  std::size_t at = 0;
  for (; at + kHashStep <= size; at += kHashStep)
    for (std::size_t row = 0; row < kRows; ++row)
      for (std::size_t i = 0; i < kHashVectors; ++i)
        lanes[row][i] = mix(lanes[row][i], rows + row * size + at + i * sizeof(Words));
  std::uint64_t sum = 0;
  for (std::size_t row = 0; row < kRows; ++row) {
    if (at < size) {
      std::array<std::byte, kHashStep> rest{};
      std::memcpy(rest.data(), rows + row * size + at, size - at);
      for (std::size_t i = 0; i < kHashVectors; ++i)
        lanes[row][i] = mix(lanes[row][i], rest.data() + i * sizeof(Words));
    }
    std::uint64_t h = (static_cast<std::uint64_t>(first_row) + row) * 0x9E3779B97F4A7C15ULL + size;
    for (const Words& words : lanes[row])
      for (int i = 0; i < 4; i += 2) h = finish_hash(h ^ words[i]) + words[i + 1];
    sum += finish_hash(h);
  }
  return sum;
}

}  // namespace

std::uint64_t content_hash(std::span<const std::byte> bytes, std::int64_t row_bytes,
                           std::int64_t first_row) {
  const auto size = static_cast<std::size_t>(row_bytes);
  std::uint64_t sum = 0;
  while (!bytes.empty()) {
    const std::size_t rows = bytes.size() >= 2 * size ? 2 : 1,
                      row_size = std::min(bytes.size(), size);
    sum += rows == 2 ? rows_sum<2>(bytes.data(), row_size, first_row)
                     : rows_sum<1>(bytes.data(), row_size, first_row);
    bytes = bytes.subspan(rows * row_size);
    first_row += static_cast<std::int64_t>(rows);
  }
  return sum;
}

}  // namespace octavo
