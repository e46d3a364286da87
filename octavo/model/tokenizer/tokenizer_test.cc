#include "octavo/model/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "octavo/base/error.h"

namespace octavo {
namespace {

using Ids = std::vector<std::int32_t>;

class TokenizerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = Tokenizer::why_unavailable(); !why.empty()) GTEST_SKIP() << why;
  }
};

// Parts of a tokenizer.json around a model; the rest is null.
std::string file(const std::string& model, const std::string& parts = "") {
  return "{" + parts + (parts.empty() ? "" : ",") + "\"model\":" + model + "}";
}
const std::string kAb =
    R"({"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3,"abc":4,"bc":5},"merges":["b c","a b","ab c"]})";
const std::string kBytes =
    R"({"type":"BPE","unk_token":"<unk>","byte_fallback":true,"fuse_unk":true,)"
    R"("vocab":{"<unk>":0,"<0xC3>":1,"<0xA9>":2,"a":3,"▁":4,"▁a":5},"merges":[["▁","a"]]})";
const std::string kSentencePiece =
    R"("normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"},)"
    R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},)"
    R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"}]})";

void expect_error(ErrorCode code, const std::string& part, const std::string& json,
                  const std::string& config = "") {
  try {
    (void)Tokenizer::from_json(json, config);
    ADD_FAILURE() << "taken: " << json.substr(0, 200);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST_F(TokenizerTest, MergesByRankAndThenFromTheLeft) {
  const Tokenizer tokenizer = Tokenizer::from_json(file(kAb));
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{0, 5}));  // "b c" comes first in the list
  EXPECT_EQ(tokenizer.encode("abab"), (Ids{3, 3}));
  EXPECT_EQ(tokenizer.encode("x"), Ids{});  // no unknown token, no byte fallback
  EXPECT_EQ(tokenizer.encode(""), Ids{});
  EXPECT_EQ(tokenizer.size(), 6);
  EXPECT_EQ(tokenizer.token_of(5), "bc");
  EXPECT_EQ(tokenizer.token_of(6), "");
  EXPECT_EQ(tokenizer.token_of(-1), "");
  EXPECT_EQ(tokenizer.id_of("ab"), 3);
  EXPECT_FALSE(tokenizer.id_of("x").has_value());
}

TEST_F(TokenizerTest, FewAndManySymbolsMergeAlike) {
  const Tokenizer tokenizer = Tokenizer::from_json(file(kAb));
  std::string text;
  Ids wanted;
  for (int i = 0; i < 1000; ++i) {
    text += i % 3 == 0 ? "abc" : "ab";
    const Ids word = i % 3 == 0 ? Ids{0, 5} : Ids{3};
    wanted.insert(wanted.end(), word.begin(), word.end());
    EXPECT_EQ(tokenizer.encode(text), wanted) << i;
  }
}

TEST_F(TokenizerTest, FallsBackToBytesAndFusesTheUnknown) {
  const Tokenizer tokenizer = Tokenizer::from_json(file(kBytes, kSentencePiece));
  EXPECT_EQ(tokenizer.encode("é a"), (Ids{1, 2, 5}));
  EXPECT_EQ(tokenizer.encode("日本a"), (Ids{0, 3}));
  EXPECT_EQ(tokenizer.decode(Ids{1, 2, 5}), "é a");
  EXPECT_EQ(tokenizer.decode(Ids{1, 3}), "\uFFFDa");
  EXPECT_EQ(tokenizer.decode(Ids{3, 77, -5}), "a");
}

TEST_F(TokenizerTest, StreamHoldsBackUnfinishedCharacters) {
  const Tokenizer tokenizer = Tokenizer::from_json(file(kBytes, kSentencePiece));
  Tokenizer::Stream stream(tokenizer);
  EXPECT_EQ(stream.put(3), "a");
  EXPECT_EQ(stream.put(1), "");
  EXPECT_EQ(stream.put(2), "é");
  EXPECT_EQ(stream.put(5), " a");
  EXPECT_EQ(stream.put(1), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.put(3), "a");
  // What never becomes a character is not held for ever, nor decoded again and again.
  std::string out;
  for (int i = 0; i < 10000; ++i) out += stream.put(1);
  EXPECT_GT(out.size(), 9000U);
}

TEST_F(TokenizerTest, BosAndEosComeAsTheFilesSay) {
  const std::string added =
      R"("added_tokens":[{"id":6,"content":"<s>","special":true},{"id":7,"content":"</s>","special":true}],)";
  const std::string json = file(
      kAb,
      added +
          R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
          R"({"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>","ids":[6],"tokens":["<s>"]}}})");
  const Tokenizer plain = Tokenizer::from_json(json);
  EXPECT_EQ(plain.encode("a"), (Ids{6, 0}));
  EXPECT_EQ(plain.encode("a", false), (Ids{0}));
  EXPECT_EQ(plain.bos(), 6);
  EXPECT_FALSE(plain.eos().has_value());
  EXPECT_TRUE(plain.is_special(7));
  EXPECT_FALSE(plain.is_special(0));
  EXPECT_EQ(plain.size(), 8);
  EXPECT_EQ(plain.decode(Ids{6, 0, 7}), "a");
  EXPECT_EQ(plain.decode(Ids{6, 0}, false), "<s> a");  // without a decoder, spaces between

  const Tokenizer ends = Tokenizer::from_json(
      json,
      R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"add_bos_token":false,"add_eos_token":true})");
  EXPECT_EQ(ends.encode("a"), (Ids{0, 7}));
  EXPECT_EQ(ends.bos(), 6);
  EXPECT_EQ(ends.eos(), 7);
  const Tokenizer named = Tokenizer::from_json(json, R"({"eos_token":"</s>"})");
  EXPECT_EQ(named.encode("a"), (Ids{6, 0}));
  EXPECT_EQ(named.eos(), 7);
  expect_error(ErrorCode::invalid_argument, "eos_token", json, R"({"eos_token":"none"})");
}

TEST_F(TokenizerTest, UnknownPartsAreNamed) {
  const auto unsupported = ErrorCode::unsupported, invalid = ErrorCode::invalid_argument;
  expect_error(unsupported, "Unigram", file(R"({"type":"Unigram","vocab":[]})"));
  expect_error(unsupported, "Precompiled", file(kAb, R"("normalizer":{"type":"Precompiled"})"));
  expect_error(
      unsupported, "UnicodeScripts",
      file(kAb,
           R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"UnicodeScripts"}]})"));
  expect_error(unsupported, "CTC", file(kAb, R"("decoder":{"type":"CTC"})"));
  expect_error(unsupported, "dropout", file(R"({"dropout":0.1,"vocab":{},"merges":[]})"));
  expect_error(unsupported, "</w>",
               file(R"({"end_of_word_suffix":"</w>","vocab":{},"merges":[]})"));
  expect_error(invalid, "pre_tokenizer.type", file(kAb, R"("pre_tokenizer":{})"));
  expect_error(invalid, "model.merges", file(R"({"vocab":{}})"));
  expect_error(invalid, "merge 0", file(R"({"vocab":{"a":0},"merges":["a"]})"));
  expect_error(invalid, "'aa'", file(R"({"vocab":{"a":0},"merges":["a a"]})"));
  expect_error(invalid, "id 0", file(R"({"vocab":{"a":0,"b":0},"merges":[]})"));
  expect_error(invalid, "'a'", file(R"({"vocab":{"a":99999999999},"merges":[]})"));
  expect_error(invalid, "'a'", file(R"({"vocab":{"a":-1},"merges":[]})"));
  expect_error(invalid, "unk_token", file(R"({"vocab":{"a":0},"merges":[],"unk_token":"u"})"));
  expect_error(invalid, "'x'", file(kAb, R"("added_tokens":[{"id":2,"content":"x"}])"));
  expect_error(invalid, "JSON", "[]");
}

TEST_F(TokenizerTest, LargeIdsTakeNoMemory) {
  const Tokenizer tokenizer =
      Tokenizer::from_json(file(R"({"vocab":{"a":2147483000,"b":5},"merges":[]})"));
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{2147483000, 5}));
  EXPECT_EQ(tokenizer.token_of(2147483000), "a");
  EXPECT_EQ(tokenizer.size(), 2147483001);
}

TEST_F(TokenizerTest, TextThatIsNotUtf8NamesTheByte) {
  const Tokenizer tokenizer = Tokenizer::from_json(file(kAb));
  for (const std::string text : {"ab\xFF", "ab\xC3", "ab\xED\xA0\x80", "ab\xC0\x80"}) {
    try {
      (void)tokenizer.encode(text);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("byte 2"), std::string::npos) << error.what();
    }
  }
  // A character that has no token gives none, and its neighbours merge, as in `tokenizers`.
  EXPECT_EQ(tokenizer.encode(std::string_view("a\0b", 3)), (Ids{3}));
}

TEST_F(TokenizerTest, ABombOfAnExpressionIsAnError) {
  const std::string bomb = "(?:a|ab?|aa)+(?:c|d)";
  const Tokenizer tokenizer =
      Tokenizer::from_json(file(kAb, R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":")" +
                                         bomb + R"("},"behavior":"Isolated","invert":false})"));
  try {
    (void)tokenizer.encode(std::string(200, 'a'));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("gave up"), std::string::npos) << error.what();
  }
  EXPECT_EQ(tokenizer.encode("ab"), (Ids{3}));  // the tokenizer is as it was
}

std::string repeated(const std::string& part, int times) {
  std::string out = part;
  for (int i = 1; i < times; ++i) out += "," + part;
  return out;
}

const std::string kDouble = R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"})";

// Each step doubles the text: 2^30 bytes of one.
TEST_F(TokenizerTest, ATextThatGrowsWithoutEndIsAnError) {
  const std::string normalizer =
      R"("normalizer":{"type":"Sequence","normalizers":[)" + repeated(kDouble, 30) + "]}";
  const std::string decoder =
      R"("decoder":{"type":"Sequence","decoders":[)" + repeated(kDouble, 30) + "]}";
  const Tokenizer grows = Tokenizer::from_json(file(kAb, normalizer)),
                  decodes = Tokenizer::from_json(file(kAb, decoder));
  const auto refused = [](const auto& call) {
    try {
      (void)call();
      ADD_FAILURE() << "taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find("16 times"), std::string::npos) << error.what();
    }
  };
  refused([&] { return grows.encode("a"); });
  refused([&] { return decodes.decode(Ids{0}); });
  EXPECT_EQ(grows.encode("b"), Ids{1});
  // A replacement of a megabyte, for each of a thousand letters.
  const std::string large =
      R"("normalizer":{"type":"Replace","pattern":{"String":"a"},"content":")" +
      std::string(1 << 20, 'b') + "\"}";
  const Tokenizer once = Tokenizer::from_json(file(kAb, large));
  refused([&] { return once.encode(std::string(1000, 'a')); });
  // In pieces between added tokens, each of which could grow by a mebibyte.
  const std::string twenty = R"("normalizer":{"type":"Sequence","normalizers":[)" +
                             repeated(kDouble, 19) +
                             R"(]},"added_tokens":[{"id":9,"content":"<s>","special":true}])";
  const Tokenizer pieces = Tokenizer::from_json(file(kAb, twenty));
  EXPECT_EQ(pieces.encode("<s>a").size(), (1U << 19) + 1);
  refused([&] { return pieces.encode("<s>a<s>a<s>a<s>a"); });
}

TEST_F(TokenizerTest, AnAddedTokenThatGrowsWithoutEndIsAnError) {
  expect_error(
      ErrorCode::unsupported, "16 times",
      file(kAb, R"("normalizer":{"type":"Sequence","normalizers":[)" + repeated(kDouble, 19) +
                    R"(]},"added_tokens":[{"id":9,"content":"xa","normalized":true}])"));
}

TEST_F(TokenizerTest, MoreStepsThanAnyTokenizerHasAreAnError) {
  const auto unsupported = ErrorCode::unsupported;
  const std::string lower = R"({"type":"Lowercase"})", fuse = R"({"type":"Fuse"})",
                    bytes = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  expect_error(
      unsupported, "got 33 normalizers in a row; expected at most 32",
      file(kAb, R"("normalizer":{"type":"Sequence","normalizers":[)" + repeated(lower, 33) + "]}"));
  expect_error(
      unsupported, "got 33 decoders in a row",
      file(kAb, R"("decoder":{"type":"Sequence","decoders":[)" + repeated(fuse, 33) + "]}"));
  // Each writes two bytes for one that is not ASCII.
  expect_error(unsupported, "got 2 pre-tokenizers of the kind 'ByteLevel'",
               file(kAb, R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[)" +
                             repeated(bytes, 2) + "]}"));
  const std::string ids = "[" + repeated("1", 65) + "]";
  expect_error(
      ErrorCode::invalid_argument, "at most 64 ids",
      file(
          kAb,
          R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},)"
          R"({"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":)" +
              ids + "}}}"));
}

// Quadratic time would be hours; the limit is for a machine with much else to do.
TEST_F(TokenizerTest, AWordOfAMegabyteTakesSeconds) {
  const std::string marks = R"("normalizer":{"type":"NFC"})";
  const Tokenizer tokenizer = Tokenizer::from_json(file(kAb, marks));
  std::string text;
  for (int i = 0; i < 150000; ++i)
    text += i % 2 == 0 ? "\u0301" : "\u0316";  // two classes of marks
  for (int i = 0; i < 400000; ++i) text += "ab";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(tokenizer.encode(text).size(), 400000U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace octavo
