#include "octavo/base/file/file_id.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace octavo {
namespace {

TEST(FileId, SeesThroughNamesAndLinks) {
  std::string pattern = (std::filesystem::temp_directory_path() / "octavo-file-id-XXXXXX").string();
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path folder = pattern;
  std::ofstream(folder / "a") << "same";
  std::ofstream(folder / "b") << "same";
  std::filesystem::create_symlink("a", folder / "symbolic");
  std::filesystem::create_hard_link(folder / "a", folder / "hard");
  const std::optional<FileId> a = file_id(folder / "a");
  ASSERT_TRUE(a);
  EXPECT_EQ(file_id(folder / "symbolic"), a);
  EXPECT_EQ(file_id(folder / "hard"), a);
  EXPECT_EQ(file_id(folder / "." / "a"), a);
  EXPECT_NE(file_id(folder / "b"), a);
  EXPECT_FALSE(file_id(folder / "nothing"));
  const int descriptor = open((folder / "hard").c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(file_id(descriptor), a);
  close(descriptor);
  EXPECT_FALSE(file_id(-1));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace octavo
