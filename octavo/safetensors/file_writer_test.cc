#include "octavo/safetensors/file_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "octavo/safetensors/file_reader.h"
#include "octavo/safetensors/safetensors_testing_internal.h"

namespace octavo::safetensors {
namespace {

class FileWriterTest : public FolderTest {
 protected:
  static std::vector<TensorPlan> plans() {
    return {{"b", StoredType::f8_e4m3, {2, 3}},
            {"scale", StoredType::f32, {}},
            {"a", StoredType::f8_e4m3, {4}},
            {"none", StoredType::f32, {0, 7}}};
  }
  static void fill(FileWriter& writer) {
    writer.write(writer.at("scale"), 0, bytes_of("SCAL"));
    writer.write(writer.at("a"), 0, bytes_of("aaaa"));
    writer.write(writer.at("b"), 0, bytes_of("bbbbbb"));
  }
  std::string write(const std::string& name, const WriteOptions& options = {}) const {
    FileWriter writer(path(name), plans(), options);
    fill(writer);
    writer.finish();
    return content(name);
  }
};

TEST_F(FileWriterTest, WhatIsWrittenCanBeRead) {
  write("x", {.metadata = {{"format", "pt"}, {"a", "b"}}});
  const FileReader file(path("x"), {.strict = true});
  EXPECT_EQ(file.header().metadata, (Metadata{{"a", "b"}, {"format", "pt"}}));
  ASSERT_EQ(file.header().tensors.size(), 4U);
  EXPECT_EQ(file.header().data_begin % 8, 0U);
  EXPECT_EQ(content("x").substr(file.header().data_begin), "SCALaaaabbbbbb");
  EXPECT_EQ(file.at("b").shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(file.at("none").nbytes(), 0U);
}

TEST_F(FileWriterTest, OrderAndPiecesDoNotChangeTheBytes) {
  const std::string wanted = write("x", {.metadata = {{"b", "1"}, {"a", "2"}}});
  std::vector<TensorPlan> reversed = plans();
  std::reverse(reversed.begin(), reversed.end());
  FileWriter writer(path("y"), reversed, {.metadata = {{"a", "2"}, {"b", "1"}}});
  writer.write(writer.at("b"), 4, bytes_of("bb"));
  writer.write(writer.at("b"), 0, bytes_of("b"));
  writer.write(writer.at("a"), 0, bytes_of("????"));
  writer.write(writer.at("b"), 1, bytes_of("bbb"));
  writer.write(writer.at("scale"), 0, bytes_of("SCAL"));
  writer.write(writer.at("a"), 0, bytes_of("aaaa"));  // overwritten with the correct bytes
  writer.finish();
  EXPECT_EQ(content("y"), wanted);
}

TEST_F(FileWriterTest, AHoleIsRefused) {
  const auto gap = [&](const std::vector<std::pair<std::uint64_t, std::size_t>>& pieces) {
    FileWriter writer(path("x"), {{"t", StoredType::u8, {10}}});
    for (const auto& [offset, size] : pieces) {
      writer.write(writer.at("t"), offset, bytes_of(std::string(size, 'x')));
    }
    return message_of([&] { writer.finish(); });
  };
  EXPECT_NE(gap({}).find("tensor 't' was not written from byte 0 on"), std::string::npos);
  EXPECT_NE(gap({{0, 9}}).find("from byte 9 on"), std::string::npos);
  EXPECT_NE(gap({{1, 9}}).find("from byte 0 on"), std::string::npos);
  EXPECT_NE(gap({{0, 4}, {5, 5}}).find("from byte 4 on"), std::string::npos);
  EXPECT_NE(gap({{5, 5}, {2, 1}, {0, 1}, {1, 1}, {0, 3}}).find("from byte 3 on"),
            std::string::npos);
  EXPECT_EQ(files(), 0U);
  EXPECT_EQ(gap({{5, 5}, {2, 1}, {0, 2}, {1, 8}}), "");
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileWriterTest, PiecesOutsideATensorAreRefused) {
  FileWriter writer(path("x"), plans());
  EXPECT_NE(message_of([&] {
              writer.write(writer.at("a"), 2, bytes_of("aaa"));
            }).find("tensor 'a' has 4 bytes, but 3 were given for byte 2 on"),
            std::string::npos);
  EXPECT_THROW(writer.write(writer.at("a"), UINT64_MAX, bytes_of("a")), Error);
  EXPECT_THROW((void)writer.at("c"), Error);
  TensorEntry other = writer.at("a");
  other.end += 1000;
  EXPECT_THROW(writer.write(other, 900, bytes_of("a")), Error);
  fill(writer);
  writer.finish();
  EXPECT_THROW(writer.write(writer.at("a"), 0, bytes_of("a")), Error);
  EXPECT_THROW(writer.finish(), Error);
}

TEST_F(FileWriterTest, PlansNoFileCanHold) {
  const auto message = [&](const std::vector<TensorPlan>& tensors, const Metadata& metadata = {}) {
    return message_of([&] { const FileWriter writer(path("x"), tensors, {.metadata = metadata}); });
  };
  const TensorPlan good{"a", StoredType::f32, {1}};
  EXPECT_NE(message({good, good}).find("tensor 'a' was named twice"), std::string::npos);
  EXPECT_NE(message({{"__metadata__", StoredType::f32, {}}}).find("'__metadata__'"),
            std::string::npos);
  EXPECT_NE(message({{"\xE9", StoredType::f32, {}}}).find("is not UTF-8"), std::string::npos);
  EXPECT_NE(message({}, {{"\xFF", ""}}).find("is not UTF-8"), std::string::npos);
  EXPECT_NE(message({}, {{"", "\xFF"}}).find("is not UTF-8"), std::string::npos);
  EXPECT_NE(message({{"a", StoredType::f4, {3}}}).find("ends inside a byte"), std::string::npos);
  EXPECT_NE(message({{"a", StoredType::f32, {UINT64_MAX, 2}}}).find("2^64 - 1"), std::string::npos);
  const std::uint64_t kMany = std::uint64_t{1} << 60;
  std::vector<TensorPlan> huge;
  for (int i = 0; i < 8; ++i) huge.push_back({text("t", i), StoredType::u8, {kMany}});
  EXPECT_NE(message(huge).find("longer than 2^63 bytes"), std::string::npos);
  EXPECT_NE(message({}, {{"a", std::string(kMaxHeaderBytes, 'x')}}).find("into several files"),
            std::string::npos);
  EXPECT_EQ(files(), 0U);
}

TEST_F(FileWriterTest, NeverOverASource) {
  const std::string before = write("x");
  const FileReader source(path("x"));
  std::filesystem::create_symlink("x", folder / "symbolic");
  std::filesystem::create_hard_link(folder / "x", folder / "hard");
  for (const char* const name : {"x", "symbolic", "hard", "./x"}) {
    EXPECT_NE(message_of([&] { FileWriter(path(name), plans(), {.sources = {source.path()}}); },
                         ErrorCode::io)
                  .find("is also a file to read from"),
              std::string::npos)
        << name;
  }
  // The target name becomes the source while the file is being written.
  FileWriter writer(path("y"), plans(), {.sources = {source.path()}});
  fill(writer);
  std::filesystem::create_hard_link(folder / "x", folder / "y");
  EXPECT_NE(message_of([&] { writer.finish(); }, ErrorCode::io).find("is also a file to read from"),
            std::string::npos);
  EXPECT_EQ(content("x"), before);
  write("other", {.sources = {source.path()}});
}

TEST_F(FileWriterTest, GivenUpLeavesWhatWasThere) {
  save("x", "before");
  {
    FileWriter writer(path("x"), plans());
    fill(writer);
    EXPECT_EQ(content("x"), "before");
  }
  EXPECT_EQ(content("x"), "before");
  EXPECT_EQ(files(), 1U);
}

TEST_F(FileWriterTest, ModeFollowsTheUmask) {
  const mode_t before = umask(0022);
  write("x");
  umask(before);
  struct stat status {};
  ASSERT_EQ(stat(path("x").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644U);
}

// A full disk, simulated by a file size limit: detected before any work.
TEST_F(FileWriterTest, NoRoomIsKnownAtOnce) {
  save("x", "before");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of(
      [&] {
        const FileWriter writer(path("x"), {{"a", StoredType::u8, {100'000}}});
      },
      ErrorCode::io);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("could not reserve"), std::string::npos) << message;
  EXPECT_EQ(content("x"), "before");
  EXPECT_EQ(files(), 1U);
}

// Whenever a process is killed, the name refers to the old file or the new one.
TEST_F(FileWriterTest, KilledInTheMiddleLeavesTheOldFile) {
  save("x", "before");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      FileWriter writer(path("x"), plans());
      writer.write(writer.at("a"), 0, bytes_of("aa"));
      if (::write(ready[1], "r", 1) == 1) pause();
    } catch (...) {  // the parent sees the pipe close
    }
    _exit(1);
  }
  close(ready[1]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  close(ready[0]);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(content("x"), "before");
  EXPECT_NO_THROW(write("x"));  // leftover temporary files do no harm
}

}  // namespace
}  // namespace octavo::safetensors
