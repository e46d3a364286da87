#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/base/file/whole_file.h"
#include "octavo/base/file/write_behind_internal.h"
#include "octavo/base/thread_pool.h"

namespace octavo {
namespace {

constexpr std::size_t kChunk = WriteBehind::kChunk;

class WriteBehindTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "octavo-write-behind-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  [[nodiscard]] std::string content() const {
    std::ifstream file(folder / "x", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::filesystem::path folder;
};

std::string some_bytes(std::size_t count) {
  std::mt19937 random(3);
  std::string out(count, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

// Pieces of all sizes, in no order, from several threads, through little and through much memory:
// the file is what they add up to.
TEST_F(WriteBehindTest, PiecesInAnyOrderFromAnyThread) {
  const std::string wanted = some_bytes(9 * kChunk + 12345);
  for (const std::uint64_t memory : {std::uint64_t{1}, std::uint64_t{16 * kChunk}}) {
    std::vector<std::pair<std::size_t, std::size_t>> pieces;
    std::mt19937 random(5);
    for (std::size_t at = 0; at < wanted.size();) {
      const std::size_t size = std::min<std::size_t>(
          wanted.size() - at, 1 + random() % (pieces.size() % 3 == 0 ? 2 * kChunk : kChunk / 8));
      pieces.emplace_back(at, size);
      at += size;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    WholeFile file("test", folder / "x");
    file.write_behind(memory);
    parallel_for(4, 4, [&](int part) {
      for (std::size_t i = static_cast<std::size_t>(part); i < pieces.size(); i += 4)
        file.write_at(pieces[i].first,
                      std::as_bytes(std::span(wanted).subspan(pieces[i].first, pieces[i].second)));
    });
    file.commit();
    EXPECT_TRUE(content() == wanted) << memory;
  }
}

TEST_F(WriteBehindTest, TheLastOfTwoWritesStays) {
  WholeFile file("test", folder / "x");
  file.write_behind(1);
  const std::string old(3 * kChunk, 'a'), late(2 * kChunk, 'b');
  file.write_at(0, std::as_bytes(std::span(old)));
  file.write_at(kChunk / 2, std::as_bytes(std::span(late)));
  file.commit();
  std::string wanted = old;
  wanted.replace(kChunk / 2, late.size(), late);
  EXPECT_TRUE(content() == wanted);
}

TEST_F(WriteBehindTest, NothingIsLeftWithoutCommit) {
  {
    WholeFile file("test", folder / "x");
    file.write_behind(4 * kChunk);
    const std::string bytes(5 * kChunk, 'a');
    file.write_at(0, std::as_bytes(std::span(bytes)));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

// A disk that refuses the bytes is an error of a later write or of finish(), never silent.
TEST_F(WriteBehindTest, ErrorsOfTheDiskAreTold) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{kChunk, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    WholeFile file("test", folder / "x");
    file.write_behind(4 * kChunk);
    const std::string bytes(kChunk, 'a');
    for (std::uint64_t i = 0; i < 8; ++i)
      file.write_at(i * kChunk, std::as_bytes(std::span(bytes)));
    file.commit();
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find(std::strerror(EFBIG)), std::string::npos) << message;
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

}  // namespace
}  // namespace octavo
