// The hash of rows against its definition, one word after the other, and in pieces.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "octavo/base/hash/row_hash_internal.h"

namespace octavo {
namespace {

std::uint64_t finished(std::uint64_t h) {
  for (int i = 0; i < 2; ++i) h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93ULL;
  return h ^ (h >> 32);
}

// Sixteen sums: word i of a row goes to sum i % 16. Rows end with zeros up to 64 bytes.
std::uint64_t hash_of_row(std::span<const std::byte> row, std::int64_t index) {
  std::array<std::uint32_t, 16> sums;
  for (std::uint32_t i = 0; i < 16; ++i) sums[i] = i + 1;
  for (std::size_t at = 0; at < row.size(); at += 64) {
    std::array<std::uint32_t, 16> words{};
    std::memcpy(words.data(), row.data() + at, std::min<std::size_t>(64, row.size() - at));
    for (std::size_t i = 0; i < 16; ++i) {
      sums[i] = (sums[i] ^ words[i]) * 0x9E3779B1U;
      sums[i] ^= sums[i] >> 15;
    }
  }
  std::uint64_t h = static_cast<std::uint64_t>(index) * 0x9E3779B97F4A7C15ULL + row.size();
  for (std::size_t i = 0; i < 16; i += 2) h = finished(h ^ sums[i]) + sums[i + 1];
  return finished(h);
}

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * i * 7 + i / 5);
  return bytes;
}

TEST(RowHashTest, RowsAreHashedByThemselves) {
  for (const std::size_t row_bytes : {1U, 63U, 64U, 65U, 200U, 1024U})
    for (const std::size_t rows : {1U, 2U, 3U, 8U}) {
      const std::vector<std::byte> bytes = some_bytes(rows * row_bytes);
      std::uint64_t sum = 0;
      for (std::size_t row = 0; row < rows; ++row)
        sum += hash_of_row(std::span(bytes).subspan(row * row_bytes, row_bytes),
                           static_cast<std::int64_t>(row + 5));
      EXPECT_EQ(content_hash(bytes, static_cast<std::int64_t>(row_bytes), 5), sum)
          << rows << " rows of " << row_bytes;
    }
}

TEST(RowHashTest, PiecesAddUp) {
  const std::vector<std::byte> bytes = some_bytes(7 * 100);
  const std::span all(bytes);
  EXPECT_EQ(content_hash(all.first(300), 100, 2) + content_hash(all.subspan(300), 100, 5),
            content_hash(all, 100, 2));
  EXPECT_EQ(content_hash({}, 100, 0), 0U);
  EXPECT_NE(content_hash(all, 100, 0), content_hash(all, 100, 1)) << "where a row is counts";
}

}  // namespace
}  // namespace octavo
