#include "octavo/base/error.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string_view>

namespace octavo {
namespace {

TEST(Error, MessageReadsOpThenText) {
  try {
    fail(ErrorCode::wrong_type, "encode", "got ", 3, " of '", 'x', "'; expected ", 2.5, "; fix it");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[encode] got 3 of 'x'; expected 2.5; fix it");
    EXPECT_EQ(error.code(), ErrorCode::wrong_type);
    return;
  }
  FAIL() << "nothing was thrown";
}

TEST(Error, IsAStandardException) {
  EXPECT_THROW(fail(ErrorCode::io, "read", "no file"), std::runtime_error);
  const Error original(ErrorCode::unsupported, "[op] text");
  const Error copy = original;
  EXPECT_EQ(copy.code(), ErrorCode::unsupported);
  EXPECT_STREQ(copy.what(), original.what());
}

TEST(Error, CheckThrowsOnlyWhenBroken) {
  EXPECT_NO_THROW(check(true, ErrorCode::internal, "op", "text"));
  EXPECT_THROW(check(false, ErrorCode::internal, "op", "text"), Error);
}

struct Printed {
  mutable int times = 0;
  operator std::string_view() const {  // NOLINT: as a part of a message
    ++times;
    return "printed";
  }
};

// Checks stand on every path: a message is put together only when it is needed.
TEST(Error, ACheckThatHoldsFormatsNothing) {
  const Printed part;
  check(true, ErrorCode::internal, "op", part);
  EXPECT_EQ(part.times, 0);
  EXPECT_THROW(check(false, ErrorCode::internal, "op", part), Error);
  EXPECT_EQ(part.times, 1);
}

TEST(Error, NumbersPrintAsStreamsPrintThem) {
  EXPECT_EQ(text(-7, ' ', ~std::uint64_t{0}, ' ', true), "-7 18446744073709551615 1");
  EXPECT_EQ(text(0.1F, ' ', 1e-9, ' ', 1234567.0, ' ', 448.0), "0.1 1e-09 1.23457e+06 448");
  EXPECT_EQ(text(std::numeric_limits<double>::infinity(), -0.0), "inf-0");
}

}  // namespace
}  // namespace octavo
