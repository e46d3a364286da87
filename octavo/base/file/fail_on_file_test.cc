#include "octavo/base/file/fail_on_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <type_traits>

namespace octavo {
namespace {

FileError thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const FileError& error) {
    return error;
  } catch (const Error& error) {
    ADD_FAILURE() << "no FileError: " << error.what();
  }
  return {0, "", ""};
}

TEST(FailOnFile, CarriesNumberAndFile) {
  static_assert(std::is_nothrow_copy_constructible_v<FileError>);
  const FileError error =
      thrown_by([] { fail_on_file(ENOENT, "a/b", "op", "could not open '", "a/b", "'"); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_EQ(error.number(), ENOENT);
  EXPECT_EQ(error.file(), "a/b");
  EXPECT_STREQ(error.what(), "[op] could not open 'a/b'");
}

TEST(FailOnFile, AnErrorAboutAFileStaysOneWhenItIsThrownAgain) {
  const FileError again = thrown_by(
      [] { fail_again(FileError(EACCES, "x", "[inner] why"), "outer", "because of why"); });
  EXPECT_EQ(again.number(), EACCES);
  EXPECT_EQ(again.file(), "x");
  EXPECT_STREQ(again.what(), "[outer] because of why");
  try {
    fail_again(Error(ErrorCode::unsupported, "[inner] why"), "outer", "why");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(dynamic_cast<const FileError*>(&error), nullptr);
  }
}

}  // namespace
}  // namespace octavo
