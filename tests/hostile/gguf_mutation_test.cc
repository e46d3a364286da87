// Mutation test with damaged GGUF files from a fixed seed: each is read or refused with a clean
// message, and none makes the reader allocate a size that it only claims.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/checkpoint/checkpoint_reader.h"
#include "octavo/checkpoint/gguf/gguf_header.h"
#include "octavo/checkpoint/gguf/gguf_testing_internal.h"
#include "tests/hostile/counted_memory.h"

namespace octavo::gguf {
namespace {

using hostile::CountMemory;
using hostile::Memory;

// The parser's window, a message, vectors that grow from nothing. A record of a tensor takes at
// most eight times its bytes in the file.
constexpr std::size_t kSlack = (1U << 16) + 8192, kTimes = 8;

std::vector<std::string> seeds() {
  std::vector<std::string> files;
  files.push_back(TestFile{}.bytes());
  std::vector<std::string> keys = llama_keys();
  keys.push_back(text_key("tokenizer.ggml.model", "gpt2"));
  keys.push_back(text_key("tokenizer.ggml.pre", "smollm"));
  keys.push_back(strings_key("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>"}));
  keys.push_back(strings_key("tokenizer.ggml.merges", {"a b"}));
  files.push_back(TestFile{.keys = keys,
                           .tensors = {tensor("token_embd.weight", {32, 4}, 8, 0),
                                       tensor("blk.0.attn_q.weight", {32, 32}, 2, 160),
                                       tensor("output_norm.weight", {32}, 0, 736)},
                           .data = std::string(736 + 128, '\x3c')}
                      .bytes());
  files.push_back(TestFile{.keys = {u32_key("general.alignment", 64)},
                           .tensors = {tensor("a", {256}, 12, 0), tensor("b", {256}, 14, 192)},
                           .data = std::string(192 + 210, '\x11')}
                      .bytes());
  return files;
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::string mutate(std::string file) {
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) change(file);
    return file;
  }

 private:
  std::size_t below(std::size_t limit) { return limit > 0 ? random_() % limit : 0; }
  void change(std::string& file) {
    const std::size_t at = below(file.size() + 1);
    const auto put = [&](const std::string& bytes) {
      if (at + bytes.size() <= file.size()) file.replace(at, bytes.size(), bytes);
    };
    switch (below(8)) {
      case 0:
        return put(std::string(1, static_cast<char>(below(256))));
      case 1:
        if (at < file.size()) file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
        return;
      case 2:
        file.erase(at, below(16));
        return;
      case 3:
        return file.resize(at);
      case 4:
        return put(le<std::uint64_t>(1ULL << below(64)));
      case 5:
        return put(le<std::uint64_t>(random_()));
      case 6:
        file.insert(at, le<std::uint32_t>(static_cast<std::uint32_t>(below(16))));
        return;
      default:
        file.insert(at, file.substr(below(file.size()), below(64)));
    }
  }
  std::mt19937_64 random_;
};

void check_message(const Error& error) {
  const std::string_view message = error.what();
  ASSERT_TRUE(message.starts_with("[gguf] ")) << message;
  ASSERT_LT(message.size(), 600U) << message;
  for (const char c : message) ASSERT_TRUE(c >= ' ' && c <= '~') << message;
}

TEST(GgufMutation, FiftyThousandDamagedFiles) {
  constexpr int kFiles = 50'000;
  const std::vector<std::string> good = seeds();
  Mutator mutator(20250116);
  int accepted = 0;
  for (int i = 0; i < kFiles && !testing::Test::HasFailure(); ++i) {
    const std::string file = mutator.mutate(good[static_cast<std::size_t>(i) % good.size()]);
    Memory memory;
    try {
      const CountMemory count(memory);
      const Header header = parse_header(
          [&](std::uint64_t position, std::span<std::byte> into) {
            std::memcpy(into.data(), file.data() + position, into.size());
          },
          file.size(), "damaged");
      ++accepted;
      for (const TensorInfo& tensor : header.tensors)
        ASSERT_LE(header.data_begin + tensor.begin + tensor.nbytes, file.size());
    } catch (const Error& error) {
      check_message(error);
    }
    ASSERT_LE(memory.most_held, kTimes * file.size() + kSlack) << "file " << i;
  }
  // Both outcomes must occur, or the mutations are of the wrong kind.
  EXPECT_GT(accepted, kFiles / 100);
  EXPECT_LT(accepted, kFiles * 3 / 4);
}

// The same through real files: everything that the header says is there is read.
TEST(GgufMutation, DamagedFilesOnDisk) {
  const int descriptor = memfd_create("damaged", MFD_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  const std::string path = text("/proc/self/fd/", descriptor);
  const std::vector<std::string> good = seeds();
  Mutator mutator(11);
  int accepted = 0;
  for (std::size_t i = 0; i < 2000 && !testing::Test::HasFailure(); ++i) {
    std::string file = mutator.mutate(good[i % good.size()]);
    if (file.size() < 4) continue;
    file.replace(0, 4, "GGUF");  // else it is taken for a safetensors file
    ASSERT_EQ(ftruncate(descriptor, 0), 0);
    ASSERT_EQ(pwrite(descriptor, file.data(), file.size(), 0), static_cast<ssize_t>(file.size()));
    try {
      const CheckpointReader reader(path);
      ++accepted;
      (void)reader.config_text();
      for (const std::string& name : reader.other_files()) (void)reader.made_file(name);
      for (const StoredTensor& tensor : reader.tensors()) {
        // f32 of blocks: at most thirteen times the file's bytes.
        ASSERT_LE(tensor.nbytes(), 13 * file.size());
        std::vector<std::byte> bytes(tensor.nbytes());
        reader.read(tensor, 0, bytes);
      }
    } catch (const Error& error) {
      check_message(error);
    }
  }
  close(descriptor);
  EXPECT_GT(accepted, 20);
}

TEST(GgufMutation, AClaimAllocatesNothing) {
  for (const std::string& value : {key("a", 8, le(~0ULL)), key("a", 9, le(6U) + le(1ULL << 40)),
                                   key("a", 9, le(8U) + le(1ULL << 40))}) {
    const std::string file = TestFile{.keys = {value}, .tensors = {}}.bytes();
    Memory memory;
    try {
      const CountMemory count(memory);
      (void)parse_header(
          [&](std::uint64_t position, std::span<std::byte> into) {
            std::memcpy(into.data(), file.data() + position, into.size());
          },
          file.size(), "claims");
      FAIL();
    } catch (const Error& error) {
      check_message(error);
    }
    EXPECT_LE(memory.most_held, kSlack);
  }
}

}  // namespace
}  // namespace octavo::gguf
