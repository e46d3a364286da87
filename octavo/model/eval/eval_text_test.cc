#include "octavo/model/eval/eval_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "octavo/base/error.h"

namespace octavo {
namespace {

std::string file_of(const std::string& content) {
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / "octavo_eval_text").string();
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::string why_not(EvalText (*read)(const std::string&, const std::string&),
                    const std::string& path) {
  try {
    (void)read("eval", path);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(EvalText, IsTheFile) {
  const std::string content = "a text, \xC3\xBC\n";
  EXPECT_EQ(read_text_file("eval", file_of(content)).content, content);
}

TEST(EvalText, RefusesWhatIsNoText) {
  EXPECT_NE(why_not(read_text_file, file_of("")).find("is empty"), std::string::npos);
  EXPECT_NE(why_not(read_text_file, file_of("abc\xFF")).find("no UTF-8 at byte 3"),
            std::string::npos);
  EXPECT_NE(why_not(read_text_file, ::testing::TempDir()).find("is a folder"), std::string::npos);
  EXPECT_NE(why_not(read_text_file, "/nowhere/at/all").find("could not open"), std::string::npos);
}

// Endless: it was read until memory was full.
TEST(EvalText, RefusesDevices) {
  for (const char* device : {"/dev/zero", "/dev/null"}) {
    EXPECT_NE(why_not(read_text_file, device).find("is a device; expected a text"),
              std::string::npos)
        << why_not(read_text_file, device);
    EXPECT_NE(why_not(read_ids_file, device).find("is a device"), std::string::npos);
  }
}

TEST(EvalText, IdsAreNumbers) {
  const std::vector<std::int32_t> wanted{1, 22, 333};
  for (const char* content : {"1 22 333", "[1, 22, 333]\n", "1\n22\n333\n", "[[1],[22,333]]"})
    EXPECT_EQ(read_ids_file("eval", file_of(content)).ids, wanted) << content;
  for (const char* content : {"1 two 3", "-1", "1.5", "99999999999", "[]", "0x10", "1;2"})
    EXPECT_NE(why_not(read_ids_file, file_of(content)).find("expected ids"), std::string::npos)
        << content << ": " << why_not(read_ids_file, file_of(content));
}

}  // namespace
}  // namespace octavo
