// One writer filled by several threads, one reader read by several.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "octavo/safetensors/file_reader.h"
#include "octavo/safetensors/file_writer.h"
#include "octavo/safetensors/safetensors_testing_internal.h"

namespace octavo::safetensors {
namespace {

constexpr std::uint64_t kThreads = 4, kPieces = 200, kBytes = 1000;

class FileThreadsTest : public FolderTest {};

TEST_F(FileThreadsTest, PiecesFromAndToSeveralThreads) {
  const auto value = [](std::uint64_t piece) { return static_cast<std::byte>(piece * 7 + 1); };
  FileWriter writer(path("x"), {{"t", StoredType::u8, {kPieces * kBytes}}});
  const auto in_threads = [&](const auto& work) {
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([t, &work] {
        for (std::uint64_t piece = t; piece < kPieces; piece += kThreads) work(piece);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  in_threads([&](std::uint64_t piece) {
    const std::vector<std::byte> bytes(kBytes, value(piece));
    writer.write(writer.at("t"), piece * kBytes, bytes);
  });
  writer.finish();

  const FileReader reader(path("x"));
  in_threads([&](std::uint64_t piece) {
    std::vector<std::byte> bytes(kBytes);
    reader.read(reader.at("t"), piece * kBytes, bytes);
    EXPECT_EQ(bytes, std::vector<std::byte>(kBytes, value(piece)));
  });
}

}  // namespace
}  // namespace octavo::safetensors
