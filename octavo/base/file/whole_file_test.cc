#include "octavo/base/file/whole_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {
namespace {

namespace fs = std::filesystem;

class WholeFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "octavo-whole-file-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder / name; }
  [[nodiscard]] std::string content(const std::string& name) const {
    std::ifstream file(folder / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
  }
  static std::span<const std::byte> bytes(std::string_view of) {
    return std::as_bytes(std::span(of));
  }

  fs::path folder;
};

TEST_F(WholeFileTest, AppearsAtCommitAndNotBefore) {
  write_whole_file("test", path("x"), "old");
  WholeFile file("test", path("x"));
  file.write(bytes("ne"));
  file.write(bytes("w"));
  EXPECT_EQ(content("x"), "old");
  EXPECT_EQ(files(), 2U);
  file.commit();
  EXPECT_EQ(content("x"), "new");
  EXPECT_EQ(files(), 1U);
}

TEST_F(WholeFileTest, PartsInAnyOrder) {
  WholeFile file("test", path("x"));
  file.write_at(3, bytes("def"));
  file.write_at(0, bytes("abc"));
  file.commit();
  EXPECT_EQ(content("x"), "abcdef");
}

TEST_F(WholeFileTest, GivenUpLeavesNothing) {
  { const WholeFile file("test", path("x")); }
  EXPECT_EQ(files(), 0U);
}

// A process that was thought dead goes on: its temporary file was removed, and another writes the
// file. It may neither give that one's half a file the final name nor remove it.
TEST_F(WholeFileTest, TakenOverItLeavesTheFileOfTheOther) {
  auto thought_dead = std::make_unique<WholeFile>("test", path("x"));
  for (const auto& file : fs::directory_iterator(folder)) fs::remove(file.path());
  WholeFile other("test", path("x"));
  other.write(bytes("half"));
  thought_dead->write(bytes("old"));
  EXPECT_THROW(thought_dead->commit(), Error);
  EXPECT_FALSE(fs::exists(path("x")));
  thought_dead.reset();
  EXPECT_EQ(files(), 1U);
  other.write(bytes(" and half"));
  other.commit();
  EXPECT_EQ(content("x"), "half and half");
}

TEST_F(WholeFileTest, ModeIsWhatTheUmaskAllows) {
  const mode_t before = umask(0027);
  write_whole_file("test", path("x"), "");
  umask(before);
  struct stat status {};
  ASSERT_EQ(stat(path("x").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640U);
}

TEST_F(WholeFileTest, RefusesWhatIsNoPlainFile) {
  EXPECT_THROW(WholeFile("test", folder), Error);
  EXPECT_THROW(WholeFile("test", "/dev/null"), Error);
  EXPECT_THROW(WholeFile("test", path("nowhere/x")), Error);
  EXPECT_THROW(WholeFile("test", path("")), Error);
  fs::create_symlink("nothing", folder / "dead");
  EXPECT_THROW(WholeFile("test", path("dead")), Error);
  EXPECT_EQ(files(), 1U);
}

TEST_F(WholeFileTest, ALinkStaysAndItsTargetIsReplaced) {
  write_whole_file("test", path("real"), "old");
  fs::create_symlink("real", folder / "link");
  write_whole_file("test", path("link"), "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(content("real"), "new");
}

// What a signal handler calls, with several files open; one that is finished is not touched.
TEST_F(WholeFileTest, UnfinishedFilesCanBeRemovedAtOnce) {
  WholeFile finished("test", path("finished"));
  finished.commit();
  std::vector<std::unique_ptr<WholeFile>> open_files;
  for (int i = 0; i < 3; ++i) {
    open_files.push_back(std::make_unique<WholeFile>("test", path(text("x", i))));
  }
  EXPECT_EQ(files(), 4U);
  remove_unfinished_files();
  EXPECT_EQ(files(), 1U);
  EXPECT_THROW(open_files[0]->commit(), Error);
}

// Slots come back: many more files one after the other than there are slots at once.
TEST_F(WholeFileTest, SlotsAreGivenBack) {
  for (int i = 0; i < 40; ++i) write_whole_file("test", path("x"), "content");
  const WholeFile file("test", path("y"));
  remove_unfinished_files();
  EXPECT_EQ(files(), 1U);
}

}  // namespace
}  // namespace octavo
