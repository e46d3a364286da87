#include "octavo/safetensors/stored_type.h"

#include <gtest/gtest.h>

#include "octavo/format/named_formats.h"

namespace octavo::safetensors {
namespace {

TEST(StoredType, NamesLeadBack) {
  for (int i = 0; i < kStoredTypes; ++i) {
    const auto type = static_cast<StoredType>(i);
    EXPECT_EQ(find_stored_type(stored_name(type)), type);
  }
  EXPECT_FALSE(find_stored_type("f32"));
  EXPECT_FALSE(find_stored_type(""));
  EXPECT_FALSE(find_stored_type("F8_E4M3FN"));
}

TEST(StoredType, ElementsHaveTheirStoredSize) {
  int known = 0;
  for (int i = 0; i < kStoredTypes; ++i) {
    const auto type = static_cast<StoredType>(i);
    const std::optional<ElementType> element = element_type(type);
    if (!element) continue;
    ++known;
    const int bits =
        element->dtype == DType::code ? element->format.bits() : 8 * element_bytes(element->dtype);
    EXPECT_EQ(bits, stored_bits(type)) << stored_name(type);
    EXPECT_EQ(element->packed, bits < 8) << stored_name(type);
    EXPECT_EQ(find_stored_type(*element), type) << stored_name(type);
  }
  EXPECT_EQ(known, 12);
}

TEST(StoredType, FormatsAreTheRightOnes) {
  EXPECT_EQ(element_type(StoredType::f8_e4m3)->format, e4m3fn);
  EXPECT_EQ(element_type(StoredType::f8_e8m0)->format, e8m0fnu);
  EXPECT_EQ(element_type(StoredType::f4)->format, e2m1fn);
  EXPECT_EQ(element_type(StoredType::f6_e3m2)->format, e3m2fn);
  EXPECT_EQ(element_type(StoredType::bf16)->dtype, DType::bf16);
  EXPECT_FALSE(element_type(StoredType::u8));
  // IEEE-like e4m3 has no safetensors dtype, nor have unpacked 4-bit codes.
  EXPECT_FALSE(find_stored_type(ElementType{.dtype = DType::code, .format = e4m3}));
  EXPECT_FALSE(find_stored_type(ElementType{.dtype = DType::code, .format = e2m1fn}));
}

}  // namespace
}  // namespace octavo::safetensors
