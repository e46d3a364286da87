#include "octavo/checkpoint/gguf/gguf_header.h"

#include <gtest/gtest.h>

#include <cstring>

#include "octavo/base/error.h"
#include "octavo/checkpoint/gguf/gguf_testing_internal.h"

namespace octavo::gguf {
namespace {

Header parse(const std::string& file) {
  return parse_header(
      [&](std::uint64_t position, std::span<std::byte> into) {
        ASSERT_LE(position + into.size(), file.size());
        std::memcpy(into.data(), file.data() + position, into.size());
      },
      file.size(), "test");
}

std::string refusal(const std::string& file, ErrorCode code = ErrorCode::invalid_argument) {
  try {
    (void)parse(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "accepted";
}

TestFile good() {
  return {.keys = {text_key("general.architecture", "llama"), u32_key("n", 7),
                   strings_key("words", {"a", "", "xyz"}), key("pi", 6, le(3.25F)),
                   key("yes", 7, std::string(1, '\1')),
                   key("many", 9, le<std::uint32_t>(5) + le<std::uint64_t>(2) + le(-1) + le(2))},
          .tensors = {tensor("a", {4, 2}, 0, 0), tensor("b", {32, 3}, 8, 32)},
          .data = std::string(32 + 3 * 34, 'x')};
}

TEST(GgufHeader, ReadsVersionsTwoAndThree) {
  for (const std::uint32_t version : {2U, 3U}) {
    TestFile file = good();
    file.version = version;
    const Header header = parse(file.bytes());
    EXPECT_EQ(header.version, version);
    EXPECT_EQ(header.data_begin % 32, 0U);
    EXPECT_EQ(header.metadata.at("general.architecture").string(), "llama");
    EXPECT_EQ(header.metadata.at("n").integer(), 7);
    EXPECT_EQ(header.metadata.at("pi").number(), 3.25);
    EXPECT_EQ(header.metadata.at("yes").boolean(), true);
    EXPECT_EQ(header.metadata.at("words").strings(),
              (std::vector<std::string_view>{"a", "", "xyz"}));
    EXPECT_EQ(header.metadata.at("many").numbers(), (std::vector<double>{-1, 2}));
    ASSERT_EQ(header.tensors.size(), 2U);
    EXPECT_EQ(header.tensors[0].shape, (std::vector<std::uint64_t>{2, 4}));
    EXPECT_EQ(header.tensors[1].type->name, "Q8_0");
    EXPECT_EQ(header.tensors[1].nbytes, 3U * 34);
  }
}

TEST(GgufHeader, EveryCutIsRefused) {
  const std::string file = good().bytes();
  for (std::size_t end = 0; end < file.size(); ++end)
    EXPECT_NE(refusal(file.substr(0, end)), "accepted") << end;
}

TEST(GgufHeader, RefusesOtherVersionsAndByteOrders) {
  TestFile file = good();
  file.version = 1;
  EXPECT_NE(refusal(file.bytes(), ErrorCode::unsupported).find("GGUF version 1"),
            std::string::npos);
  file.version = 3U << 24;
  EXPECT_NE(refusal(file.bytes(), ErrorCode::unsupported).find("big-endian"), std::string::npos);
  EXPECT_NE(refusal("GGML" + good().bytes().substr(4)).find("no GGUF file"), std::string::npos);
}

struct Damage {
  const char* says;
  std::vector<std::string> keys, tensors;
};

TEST(GgufHeader, RefusesWhatCannotBe) {
  constexpr std::uint64_t kHuge = ~0ULL;
  const std::string array = le<std::uint32_t>(9) + le<std::uint64_t>(1);
  const std::vector<Damage> all{
      {"comes twice", {u32_key("a", 1), u32_key("a", 1)}, {}},
      {"comes twice", {}, {tensor("a", {4}, 0, 0), tensor("a", {4}, 0, 32)}},
      {"type 13", {key("a", 13, "")}, {}},
      {"array of arrays", {key("a", 9, array + array)}, {}},
      {"at most 100000000", {key("a", 8, le(kHuge) + "x")}, {}},
      {"is cut off", {key("a", 8, le<std::uint64_t>(1'000'000) + "x")}, {}},
      {"is cut off", {key("a", 9, le<std::uint32_t>(0) + le<std::uint64_t>(1'000'000))}, {}},
      {"elements", {key("a", 9, le<std::uint32_t>(10) + le(kHuge))}, {}},
      {"strings", {key("a", 9, le<std::uint32_t>(8) + le(kHuge))}, {}},
      {"is cut off", {key("a", 9, le<std::uint32_t>(8) + le<std::uint64_t>(100'000))}, {}},
      {"general.alignment", {u32_key("general.alignment", 0)}, {}},
      {"general.alignment", {u32_key("general.alignment", 12)}, {}},
      {"general.alignment", {text_key("general.alignment", "32")}, {}},
      {"65536 bytes", {sized(std::string(65536, 'k'))}, {}},
      {"5 dimensions", {}, {tensor("a", {1, 1, 1, 1, 1}, 0, 0)}},
      {"can be counted", {}, {tensor("a", {1ULL << 32, 1ULL << 32}, 0, 0)}},
      {"can be counted", {}, {tensor("a", {kHuge, 0}, 0, 0)}},
      {"does not know", {}, {tensor("a", {32}, 99, 0)}},
      {"does not know", {}, {tensor("a", {32}, 4, 0)}},  // Q4_2, gone since 2023
      {"multiple of 32", {}, {tensor("a", {33}, 8, 0)}},
      {"multiple of 256", {}, {tensor("a", {32, 8}, 12, 0)}},
      {"multiple of 32", {}, {tensor("a", {4}, 0, 8)}},
      {"lie one after another", {}, {tensor("a", {4}, 0, 32)}},
      {"lie one after another", {}, {tensor("a", {16}, 0, 0), tensor("b", {4}, 0, 32)}},
      {"get the whole file", {}, {tensor("a", {4096}, 0, 0)}},
      {"not UTF-8", {}, {tensor("\xff", {4}, 0, 0)}},
  };
  for (const Damage& damage : all) {
    const TestFile file{
        .keys = damage.keys, .tensors = damage.tensors, .data = std::string(256, 'x')};
    EXPECT_NE(refusal(file.bytes()).find(damage.says), std::string::npos)
        << damage.says << ": " << refusal(file.bytes());
  }
}

// Counts that a file only claims: what is read is bounded by what it has.
TEST(GgufHeader, ClaimedCountsAreNotBelieved) {
  for (const std::uint64_t tensors : {1ULL << 17, 1ULL << 18, ~0ULL})
    for (const std::uint64_t keys : {0ULL, 1ULL << 16, ~0ULL})
      EXPECT_NE(refusal("GGUF" + le(3U) + le(tensors) + le(keys)), "accepted");
}

}  // namespace
}  // namespace octavo::gguf
