// Valid and invalid headers; every refusal says where and why. The verdicts are checked against the
// Rust reader's in tests/conformance/safetensors_peer_test.cc.
#include "octavo/safetensors/header.h"

#include <gtest/gtest.h>

#include "octavo/safetensors/safetensors_testing_internal.h"

namespace octavo::safetensors {
namespace {

Header parse(std::string_view content, bool strict = false) {
  return parse_header_of(bytes_of(content), "some.safetensors", {.strict = strict});
}

std::string tensor(std::string_view shape = "[1]", std::string_view place = "[0,4]",
                   std::string_view type = "F32") {
  return text(R"({"dtype":")", type, R"(","shape":)", shape, R"(,"data_offsets":)", place, "}");
}
std::string one(std::string_view shape, std::string_view place, std::string_view type = "F32",
                std::size_t data = 4) {
  return file_text(text(R"({"a":)", tensor(shape, place, type), "}"), std::string(data, '\0'));
}
std::string two(std::string_view first, std::string_view second, std::size_t data) {
  return file_text(text(R"({"a":)", tensor("[1]", first), R"(,"b":)", tensor("[1]", second), "}"),
                   std::string(data, '\0'));
}

struct Refusal {
  std::string file;
  std::string message;  // expected substring
};

TEST(Header, RefusalsSayWhatIsWrong) {
  const std::string good = text(R"({"a":)", tensor(), "}"), data(4, '\0');
  const Refusal kRefusals[] = {
      {"", "has 0 bytes; expected at least 8"},
      {std::string(7, '\0'), "has 7 bytes; expected at least 8"},
      {length_text(0), "byte 0: got the end; expected an object"},
      {length_text(3) + "{}", "announces a header of 3 bytes, but has only 2"},
      {length_text(100'000'001) + "{}", "announces a header of 100000001 bytes; expected at most"},
      {length_text(UINT64_MAX) + "{}", "announces a header of 18446744073709551615 bytes"},
      {file_text(good + '\0', data), "got '?' behind the end"},
      {file_text(good + "{}", data), "got '{' behind the end"},
      {file_text("{\"\xE9\":1}"), "byte 2: got bytes that are not UTF-8"},
      {file_text("\xEF\xBB\xBF{}"), "byte 0: got '?'; expected an object"},
      {file_text(R"({"\ud800":1})"), "lone surrogate"},
      {file_text("[]"), "got '['; expected an object"},
      {file_text(R"({"__metadata__":{},"__metadata__":{}})"), "'__metadata__' twice"},
      {file_text(R"({"__metadata__":{"a":1}})"), "got '1'; expected a string"},
      {file_text(R"({"__metadata__":{"a":{}}})"), "got '{'; expected a string"},
      {file_text(R"({"a":{"dtype":"F32","dtype":"F32"}})"), "tensor 'a': got field 'dtype' twice"},
      {file_text(R"({"a":{"dtype":"F32","shape":[1]}})"),
       "tensor 'a': got no field 'data_offsets'"},
      {file_text(R"({"a":{"shape":[1],"data_offsets":[0,4]}})"), "got no field 'dtype'"},
      {file_text(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})"), "got no field 'shape'"},
      {two("[0,4]", "[2,6]", 6), "tensor 'b' lies at bytes 2 to 6 inside another"},
      {two("[0,4]", "[0,4]", 4), "inside another; expected it to begin at 4"},
      {one("[1]", "[4,8]", "F32", 8), "after a hole; expected it to begin at 0"},
      {two("[0,4]", "[8,12]", 12), "tensor 'b' lies at bytes 8 to 12 after a hole"},
      {one("[1]", "[4,0]"), "expected the beginning before the end"},
      {one("[-1]", "[0,4]"), "tensor 'a': got -1; expected an integer from 0"},
      {one("[1.0]", "[0,4]"), "got 1.0; expected an integer"},
      {one("[1e0]", "[0,4]"), "got 1e0; expected an integer"},
      {one("[\"1\"]", "[0,4]"), "expected a number"},
      {one("[1]", "[0,4,8]"), "expected data_offsets of two numbers"},
      {one("[1]", "[0]"), "expected data_offsets of two numbers"},
      {one("[1]", "[0,4]", "F32", 3), "the file was cut short"},
      {one("[1]", "[0,4]", "F32", 5), "something was added to the file"},
      {one("[2]", "[0,4]"), "expected 8 bytes for F32 of shape [2]"},
      {one("[4294967296,4294967296]", "[0,0]", "F32", 0),
       "[4294967296, 4294967296]; expected at most"},
      {one("[9223372036854775808,2,0]", "[0,0]", "F32", 0), "expected at most 2^64 - 1 bits"},
      {one("[576460752303423488]", "[0,0]", "F32", 0), "expected at most 2^64 - 1 bits"},
      {one("[1]", "[0,4]", "f32"), "got dtype 'f32'; expected one of the file format's"},
      {one("[1]", "[0,4]", "F128"), "got dtype 'F128'"},
      {one("[3]", "[0,2]", "F4", 2), "of F4 and shape [3] ends inside a byte"},
      {one("[2]", "[0,2]", "F6_E2M3", 2), "of F6_E2M3 and shape [2] ends inside a byte"},
  };
  for (const Refusal& refusal : kRefusals) {
    const std::string message = message_of([&] { (void)parse(refusal.file); });
    EXPECT_NE(message.find(refusal.message), std::string::npos)
        << "expected: " << refusal.message << "\ngot:    " << message;
    EXPECT_NE(message.find("'some.safetensors'"), std::string::npos) << message;
  }
}

TEST(Header, WhatIsUnusualButRight) {
  const std::string data(4, '\0'), plain = text(R"({"a":)", tensor(), "}");
  const std::string kGood[] = {
      file_text("{}"),
      file_text(" " + plain, data),
      file_text(plain + " \n\t", data),
      file_text(R"({"__metadata__":null})"),
      file_text(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":[{}]}})", data),
      file_text(text(R"({"a":)", tensor(), R"(,"a":)", tensor(), "}"), data),
      one("[3,0]", "[0,0]", "F32", 0),
      one("[]", "[0,4]"),
      file_text(text(R"({"":)", tensor(), "}"), data),
      file_text(text(R"({"\u0000":)", tensor(), "}"), data),
      file_text(text(R"({"../../x":)", tensor(), "}"), data),
      two("[4,8]", "[0,4]", 8),
      one("[2,3]", "[0,3]", "F4", 3),
      one("[4]", "[0,3]", "F6_E3M2", 3),
      file_text(
          text(R"({"o":)", tensor("[1]", "[0,1]", "BOOL"), R"(,"a":)", tensor("[1]", "[1,5]"), "}"),
          "\2" + data),
  };
  for (const std::string& file : kGood) EXPECT_NO_THROW((void)parse(file)) << file;
}

TEST(Header, SaysWhatIsThere) {
  const Header header = parse(file_text(
      text(R"({"b":)", tensor("[1]", "[4,8]"), R"(,"a":)", tensor("[2,2]", "[0,4]", "F8_E4M3"),
           R"(,"e":)", tensor("[0]", "[4,4]"), R"(,"__metadata__":{"format":"pt"}})"),
      "12345678"));
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].type, StoredType::f8_e4m3);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<std::uint64_t>{2, 2}));
  EXPECT_EQ(header.tensors[1].name, "e");
  EXPECT_EQ(header.tensors[2].nbytes(), 4U);
  EXPECT_EQ(header.metadata, (Metadata{{"format", "pt"}}));
  EXPECT_EQ(header.data_bytes, 8U);
  for (const TensorEntry& entry : header.tensors) EXPECT_EQ(header.find(entry.name), &entry);
  for (const char* const absent : {"", "A", "aa", "c", "zz", "__metadata__"}) {
    EXPECT_EQ(header.find(absent), nullptr) << absent;
  }
}

TEST(Header, OfTwoWithOneNameTheLastStays) {
  const std::string file =
      file_text(text(R"({"a":)", tensor("[2]", "[0,8]"), R"(,"b":)", tensor("[1]", "[4,8]"),
                     R"(,"a":)", tensor("[4]", "[0,4]", "U8"), "}"),
                "12345678");
  const Header header = parse(file);
  EXPECT_EQ(header.tensors.size(), 2U);
  ASSERT_NE(header.find("a"), nullptr);
  EXPECT_EQ(header.find("a")->type, StoredType::u8);
  EXPECT_NE(message_of([&] { (void)parse(file, true); }).find("tensor 'a' is there twice"),
            std::string::npos);
}

TEST(Header, StrictRefusesMore) {
  const std::string data(4, '\0'), field = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  const Refusal kRefusals[] = {
      {file_text(" {}"), "got ' '; expected '{' at once"},
      {file_text(R"({"__metadata__":{"a":"1","a":"2"}})"), "got metadata key 'a' twice"},
      {file_text(text(R"({"a":{)", field, R"(,"x":1,"x":2}})"), data), "got field 'x' twice"},
      {file_text(text(R"({"a":{)", field, R"(,"x":{"y":1,"y":2}}})"), data), "got key 'y' twice"},
  };
  for (const Refusal& refusal : kRefusals) {
    EXPECT_NO_THROW((void)parse(refusal.file));
    const std::string message = message_of([&] { (void)parse(refusal.file, true); });
    EXPECT_NE(message.find(refusal.message), std::string::npos) << message;
  }
  EXPECT_NO_THROW((void)parse(file_text(R"({"__metadata__":{"a":"b"}}   )"), true));
}

// Names and paths are untrusted: messages stay printable and short.
TEST(Header, HostileNamesDoNotReachATerminal) {
  const std::string name = "\\u001b[2J" + std::string(100'000, 'x') + "\u00e9";
  const std::string message = message_of([&] {
    (void)parse_header_of(bytes_of(file_text(text(R"({")", name, R"(":)", tensor("[2]"), "}"))),
                          "\x1b]0;title\a" + std::string(10'000, 'p'));
  });
  EXPECT_LT(message.size(), 700U);
  for (const char c : message) EXPECT_TRUE(c >= ' ' && c <= '~') << message;
}

}  // namespace
}  // namespace octavo::safetensors
