#include "octavo/safetensors/data_checksum.h"

#include <gtest/gtest.h>

#include <random>

#include "octavo/safetensors/file_writer.h"
#include "octavo/safetensors/safetensors_testing_internal.h"

namespace octavo::safetensors {
namespace {

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(count);
  for (std::byte& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

// The definition, byte by byte.
std::uint64_t by_definition(std::uint64_t offset, std::span<const std::byte> bytes) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint64_t at = offset + i;
    std::uint64_t byte = static_cast<std::uint64_t>(bytes[i]);
    for (std::uint64_t k = 0; k < at % 4; ++k) byte *= 256;
    sum += byte * (at / 4 * 2 + 1);
  }
  return sum;
}

TEST(DataChecksum, IsTheWeightedSumOfWords) {
  const auto bytes = random_bytes(70'000, 1);
  for (const std::uint64_t offset : {0ULL, 1ULL, 2ULL, 3ULL, 4ULL, 16'383ULL, 0xFFFFFFFFFFULL})
    for (const std::size_t count : {0UL, 1UL, 3UL, 4UL, 5UL, 16'384UL, 16'389UL, 70'000UL})
      EXPECT_EQ(piece_checksum(offset, std::span(bytes).first(count)),
                by_definition(offset, std::span(bytes).first(count)))
          << offset << " " << count;
}

TEST(DataChecksum, DetectsAccidentalDamage) {
  auto bytes = random_bytes(40'000, 2);
  const std::uint64_t whole = piece_checksum(0, bytes);
  for (std::size_t i = 0; i < bytes.size(); i += 97) {
    bytes[i] ^= std::byte{1};
    EXPECT_NE(piece_checksum(0, bytes), whole) << i;
    bytes[i] ^= std::byte{1};
  }
  std::swap_ranges(bytes.begin(), bytes.begin() + 4096, bytes.begin() + 8192);
  EXPECT_NE(piece_checksum(0, bytes), whole);
  std::fill(bytes.begin() + 12'288, bytes.begin() + 16'384, std::byte{0});
  EXPECT_NE(piece_checksum(0, bytes), whole);
}

class DataSumTest : public FolderTest {};

TEST_F(DataSumTest, AWriterAndAReaderAgree) {
  const auto bytes = random_bytes(5003, 3);
  FileWriter writer(path("x.safetensors"),
                    {{"a", StoredType::u8, {5003}}, {"b", StoredType::u8, {7}}}, {.sum = true});
  for (const std::size_t at : {4000UL, 0UL, 1UL, 2500UL}) {  // out of order, in pieces of odd size
    const std::size_t end = at == 0 ? 1 : at == 1 ? 2500 : at == 2500 ? 4000 : 5003;
    writer.write(writer.at("a"), at, std::span(bytes).subspan(at, end - at));
  }
  writer.write(writer.at("b"), 0, std::span(bytes).first(7));
  writer.finish();
  const FileReader reader(path("x.safetensors"));
  EXPECT_EQ(data_checksum(reader), writer.written_checksum());
  EXPECT_NE(writer.written_checksum(), 0U);
}

}  // namespace
}  // namespace octavo::safetensors
