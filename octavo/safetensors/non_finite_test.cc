#include "octavo/safetensors/non_finite.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace octavo::safetensors {
namespace {

template <typename Bits>
void expect_counts(StoredType type, Bits infinity) {
  std::vector<std::byte> bytes(101 * sizeof(Bits) + 1);  // plus an incomplete element of one byte
  const auto put = [&](std::size_t i, Bits bits) {
    std::memcpy(bytes.data() + i * sizeof(Bits), &bits, sizeof(Bits));
  };
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  for (std::size_t i = 0; i < 101; ++i) put(i, static_cast<Bits>(infinity - 1));
  NonFiniteFound found = non_finite_in(bytes, type);
  EXPECT_EQ(found.nan + found.inf, 0) << stored_name(type);
  put(0, infinity);
  put(57, static_cast<Bits>(infinity | kSign));
  put(58, static_cast<Bits>(infinity + 1));
  put(99, static_cast<Bits>(infinity | kSign | 1));
  put(100, static_cast<Bits>(~Bits{0}));
  found = non_finite_in(bytes, type);
  EXPECT_EQ(found.inf, 2) << stored_name(type);
  EXPECT_EQ(found.nan, 3) << stored_name(type);
}

TEST(NonFinite, IsCountedInEveryTypeThatHasIt) {
  expect_counts<std::uint16_t>(StoredType::bf16, 0x7F80);
  expect_counts<std::uint16_t>(StoredType::f16, 0x7C00);
  expect_counts<std::uint32_t>(StoredType::f32, 0x7F800000U);
  expect_counts<std::uint64_t>(StoredType::f64, 0x7FF0000000000000U);
  const std::vector<std::byte> ones(64, std::byte{0xFF});
  for (const StoredType type : {StoredType::i64, StoredType::u8, StoredType::f8_e4m3}) {
    const NonFiniteFound found = non_finite_in(ones, type);
    EXPECT_EQ(found.nan + found.inf, 0) << stored_name(type);
  }
  EXPECT_EQ(non_finite_in({}, StoredType::f32).nan, 0);
}

}  // namespace
}  // namespace octavo::safetensors
