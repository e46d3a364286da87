#include "octavo/tensor/dtype.h"

#include <gtest/gtest.h>

#include "octavo/base/error.h"
#include "octavo/format/named_formats.h"
#include "octavo/format/parse_format.h"

namespace octavo {
namespace {

constexpr DType kValues[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

TEST(DType, NamesGoRound) {
  for (const DType dtype : kValues) {
    const std::string name(dtype_name(dtype));
    EXPECT_EQ(parse_dtype(name), dtype);
    EXPECT_EQ(parse_dtype("torch." + name), dtype);
    EXPECT_TRUE(is_value(dtype));
  }
  EXPECT_FALSE(is_value(DType::code));
  EXPECT_EQ(dtype_name(DType::code), "code");
}

TEST(DType, ShortNames) {
  EXPECT_EQ(parse_dtype("f64"), DType::f64);
  EXPECT_EQ(parse_dtype("f32"), DType::f32);
  EXPECT_EQ(parse_dtype("f16"), DType::f16);
  EXPECT_EQ(parse_dtype("bf16"), DType::bf16);
}

TEST(DType, RefusesEverythingElse) {
  const std::string shouting = "FLOAT32", spaced = "float32 ", with_nul("float32\0", 8);
  for (const std::string& bad :
       {std::string(), shouting, spaced, with_nul, std::string("float"), std::string("code"),
        std::string("int8"), std::string("torch."), std::string("float8_e4m3fn")}) {
    try {
      (void)parse_dtype(bad);
      ADD_FAILURE() << "'" << bad << "' was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::wrong_type);
      EXPECT_EQ(std::string(error.what()).rfind("[dtype] got '", 0), 0u);
    }
  }
  EXPECT_THROW((void)parse_dtype(std::string(100000, 'x')), Error);
}

TEST(DType, ElementBytes) {
  EXPECT_EQ(element_bytes(DType::f64), 8);
  EXPECT_EQ(element_bytes(DType::f32), 4);
  EXPECT_EQ(element_bytes(DType::f16), 2);
  EXPECT_EQ(element_bytes(DType::bf16), 2);
  for (const NamedFormat& named : kNamedFormats)
    EXPECT_EQ(element_bytes(DType::code, named.format), 1) << named.name;
  EXPECT_EQ(element_bytes(DType::code, parse_format("e5m3")), 2);
  EXPECT_EQ(element_bytes(DType::code, parse_format("e5m10")), 2);
}

TEST(DType, PackedRowsFillWholeBytes) {
  const struct {
    std::int64_t cols, fp4, fp6;
  } rows[] = {{0, 0, 0}, {1, 1, 1}, {2, 1, 2},    {3, 2, 3},
              {4, 2, 3}, {5, 3, 4}, {32, 16, 24}, {33, 17, 25}};
  for (const auto& [cols, fp4, fp6] : rows) {
    EXPECT_EQ(packed_row_bytes(cols, e2m1fn), fp4) << cols;
    EXPECT_EQ(packed_row_bytes(cols, e3m2fn), fp6) << cols;
  }
  EXPECT_EQ(packed_row_bytes(3, parse_format("e1m1fn")), 2);  // three bits each: nine bits
}

}  // namespace
}  // namespace octavo
