// Mutation test with a hundred thousand damaged safetensors files from a fixed seed: each is read
// or refused with a clean message, and none makes the reader allocate a size that it only claims.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/safetensors/file_reader.h"
#include "octavo/safetensors/header.h"
#include "octavo/safetensors/header_writer.h"
#include "tests/hostile/counted_memory.h"

namespace octavo::safetensors {
namespace {

using hostile::CountMemory;
using hostile::Memory;

// Besides the file itself: a message, an exception, vectors that grow from nothing. A size that a
// damaged file claims is far beyond it.
constexpr std::size_t kSlack = 8192;

std::vector<std::string> seeds() {
  std::vector<std::string> files;
  const auto add = [&files](const std::vector<TensorPlan>& plans, const Metadata& metadata) {
    const Header header = place_tensors(plans, metadata, "seed");
    files.push_back(write_header(header) + std::string(header.data_bytes, '\x11'));
  };
  add({}, {});
  add({{"w", StoredType::f32, {2, 2}}}, {{"format", "pt"}});
  add({{"model.layers.0.q_proj.weight", StoredType::f8_e4m3, {4, 8}},
       {"model.layers.0.q_proj.weight_scale", StoredType::f32, {}},
       {"\u00e9\"\\\n", StoredType::bf16, {3}},
       {"empty", StoredType::i64, {0, 5}}},
      {{"a", "b"}, {"c", ""}});
  add({{"p", StoredType::f4, {2, 3}},
       {"q", StoredType::f6_e2m3, {4}},
       {"r", StoredType::boolean, {1}}},
      {});
  const std::string json =
      R"( {"a":{"shape":[1],"x":[{"y":-1.5e3},null,true],"dtype":"U8","data_offsets":[0,1]},)"
      R"("a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"\ud83d\ude00":{"dtype":"U8",)"
      R"("shape":[0],"data_offsets":[1,1]},"__metadata__":null})";
  std::string length(8, '\0');
  length[0] = static_cast<char>(json.size() & 0xFF);
  length[1] = static_cast<char>(json.size() >> 8);
  files.push_back(length + json + "1");
  return files;
}

// Mutations insert these: bytes, and tokens that have a meaning to the parser.
constexpr auto kWords = std::to_array<std::string_view>({"\"",
                                                         "{",
                                                         "}",
                                                         "[",
                                                         "]",
                                                         ",",
                                                         ":",
                                                         "0",
                                                         "-",
                                                         "e",
                                                         ".",
                                                         "null",
                                                         "\\u",
                                                         "\\ud800",
                                                         "[0,0]",
                                                         "18446744073709551615",
                                                         "18446744073709551616",
                                                         "4294967296",
                                                         "9223372036854775807",
                                                         "1e9",
                                                         "\"dtype\":",
                                                         "\"shape\":",
                                                         "\"data_offsets\":",
                                                         "\"__metadata__\":",
                                                         "\"F32\"",
                                                         "\"F4\"",
                                                         " "});

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  std::string mutate(std::string file) {
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(file);
    // Most damage after the length is only reached when the length is correct.
    if (file.size() >= 8 && below(4) != 0) {
      const std::size_t json = std::min(file.rfind('}') + 1, file.size());
      if (json > 8) set_length(file, json - 8);
    }
    return file;
  }

 private:
  std::size_t below(std::size_t limit) { return limit > 0 ? random_() % limit : 0; }
  static void set_length(std::string& file, std::uint64_t length) {
    for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  }
  void change(std::string& file) {
    const std::size_t at = below(file.size() + 1), length = below(file.size() - at + 1);
    const std::string_view word = kWords[below(kWords.size())];
    switch (below(9)) {
      case 0:
        if (at < file.size()) file[at] = static_cast<char>(below(256));
        break;
      case 1:
        if (at < file.size()) file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
        break;
      case 2:
        file.erase(at, std::min<std::size_t>(length, 8));
        break;
      case 3:
        file.resize(at);
        break;
      case 4:
        file.insert(at, word);
        break;
      case 5:
        file.replace(at, std::min<std::size_t>(length, word.size()), word);
        break;
      case 6:
        file.insert(below(file.size() + 1), file.substr(at, std::min<std::size_t>(length, 64)));
        break;
      case 7:
        file.insert(at, below(200), "[{x0\xff \0"[below(8)]);
        break;
      default:
        if (file.size() >= 8) set_length(file, below(2) != 0 ? random_() : below(2 * file.size()));
    }
  }
  std::mt19937_64 random_;
};

void check_message(const Error& error) {
  const std::string_view message = error.what();
  ASSERT_EQ(message.substr(0, 14), "[safetensors] ") << message;
  ASSERT_LT(message.size(), 600U) << message;
  for (const char c : message) ASSERT_TRUE(c >= ' ' && c <= '~') << message;
}

TEST(SafetensorsMutation, AHundredThousandDamagedFiles) {
  constexpr int kFiles = 100'000;
  const std::vector<std::string> good = seeds();
  Mutator mutator(20240607);
  int accepted = 0;
  for (int i = 0; i < kFiles && !testing::Test::HasFailure(); ++i) {
    const std::string file = mutator.mutate(good[static_cast<std::size_t>(i) % good.size()]);
    Memory memory;
    try {
      const CountMemory count(memory);
      const Header header =
          parse_header_of(std::as_bytes(std::span(file)), "damaged", {.strict = i % 2 == 1});
      ++accepted;
      std::uint64_t end = 0;
      for (const TensorEntry& tensor : header.tensors) {
        ASSERT_EQ(tensor.begin, end);
        end = tensor.end;
      }
      ASSERT_EQ(header.data_begin + end, file.size());
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::invalid_argument);
      check_message(error);
    }
    ASSERT_LE(memory.largest, file.size() + kSlack) << "file " << i;
  }
  // Both outcomes must occur, or the mutations are of the wrong kind.
  EXPECT_GT(accepted, kFiles / 100);
  EXPECT_LT(accepted, kFiles / 2);
}

// The same through real files, and everything read that the header says is there.
TEST(SafetensorsMutation, DamagedFilesOnDisk) {
  const int descriptor = memfd_create("damaged", MFD_CLOEXEC);  // a plain file that needs no disk
  ASSERT_GE(descriptor, 0);
  const std::string path = text("/proc/self/fd/", descriptor);
  const std::vector<std::string> good = seeds();
  Mutator mutator(7);
  int accepted = 0;
  for (std::size_t i = 0; i < 2000 && !testing::Test::HasFailure(); ++i) {
    const std::string file = mutator.mutate(good[i % good.size()]);
    ASSERT_EQ(ftruncate(descriptor, 0), 0);
    ASSERT_EQ(pwrite(descriptor, file.data(), file.size(), 0), static_cast<ssize_t>(file.size()));
    Memory memory;
    try {
      const CountMemory count(memory);
      const FileReader reader(path);
      ++accepted;
      for (const TensorEntry& tensor : reader.header().tensors) {
        ASSERT_LE(tensor.nbytes(), file.size());
        std::string bytes(tensor.nbytes(), '\0');
        reader.read(tensor, 0, std::as_writable_bytes(std::span(bytes)));
        ASSERT_EQ(bytes, file.substr(reader.header().data_begin + tensor.begin, tensor.nbytes()));
        if (element_type(tensor.type)) {
          try {
            ASSERT_LE(static_cast<std::size_t>(reader.read_tensor(tensor).nbytes()), file.size());
          } catch (const Error& error) {  // a shape that octavo has no array for
            ASSERT_NE(error.code(), ErrorCode::internal);
          }
        }
      }
    } catch (const Error& error) {
      check_message(error);
    }
    ASSERT_LE(memory.largest, file.size() + kSlack) << "file " << i;
  }
  close(descriptor);
  EXPECT_GT(accepted, 20);
}

// Headers that are as expensive as text can be: memory stays a small multiple of the file size.
TEST(SafetensorsMutation, ExpensiveHeadersCostInProportion) {
  constexpr std::size_t kBytes = 1 << 20, kMaxPerByte = 16;
  const auto repeated = [](std::string_view before, std::string_view piece,
                           std::string_view after) {
    std::string json(before);
    while (json.size() < kBytes) json += piece;
    return json += after;
  };
  std::string names = "{", metadata = R"({"__metadata__":{)";
  for (int i = 0; names.size() < kBytes; ++i) {
    names += text('"', i, R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)");
  }
  for (int i = 0; metadata.size() < kBytes; ++i) metadata += text('"', i, R"(":"",)");
  names.back() = '}';
  metadata.back() = '}';
  const std::string headers[] = {
      repeated(R"({"a":{"dtype":"U8","data_offsets":[0,0],"shape":[0)", ",0", "]}}"),
      repeated(R"({"a":{"dtype":"U8","data_offsets":[0,0],"shape":[0],"x":[0)", ",[]", "]}}"),
      repeated(R"({"a":{"dtype":"U8","data_offsets":[0,0],"shape":[0],"x":{"":0)", ",\"\":0",
               "}}}"),
      repeated("{\"__metadata__\":{\"\":\"\"", ",\"\":\"\"", "}}"),
      repeated("{\"__metadata__\":{\"", "x", "\":\"\"}}"),
      names,
      metadata + "}",
  };
  for (const std::string& json : headers) {
    Memory memory;
    {
      const CountMemory count(memory);
      const Header header = parse_header(json, json.size() + 8, "expensive");
    }
    EXPECT_LE(memory.most_held, kMaxPerByte * json.size()) << json.substr(0, 80);
  }
}

// The guard itself: a header that claims much more than the file has.
TEST(SafetensorsMutation, AClaimAllocatesNothing) {
  std::string file(50, '{');
  file.replace(0, 8, std::string("\x00\xe1\xf5\x05\0\0\0\0", 8));  // 100,000,000
  Memory memory;
  try {
    const CountMemory count(memory);
    (void)parse_header_of(std::as_bytes(std::span(file)), "claims");
    FAIL();
  } catch (const Error& error) {
    check_message(error);
  }
  EXPECT_LE(memory.most_held, kSlack);
  EXPECT_GT(memory.most_held, 0U);  // the message: counting works
}

}  // namespace
}  // namespace octavo::safetensors
