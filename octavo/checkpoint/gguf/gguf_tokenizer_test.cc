#include "octavo/checkpoint/gguf/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "octavo/base/error_testing_internal.h"
#include "octavo/base/json/json.h"
#include "octavo/checkpoint/gguf/gguf_keys.h"
#include "octavo/checkpoint/gguf/gguf_testing_internal.h"

namespace octavo::gguf {
namespace {

Header header_of(const std::vector<std::string>& keys) {
  const std::string content = TestFile{.keys = keys}.bytes();
  return parse_header(
      [&](std::uint64_t position, std::span<std::byte> into) {
        std::memcpy(into.data(), content.data() + position, into.size());
      },
      content.size(), "test.gguf");
}

std::string f32s_key(std::string_view name, const std::vector<float>& values) {
  std::string bytes = le<std::uint32_t>(6) + le<std::uint64_t>(values.size());
  for (const float value : values) bytes += le(value);
  return key(name, 9, bytes);
}

Header pieces(const std::vector<std::string>& tokens, const std::vector<float>& scores) {
  return header_of({text_key("tokenizer.ggml.model", "llama"),
                    strings_key("tokenizer.ggml.tokens", tokens),
                    f32s_key("tokenizer.ggml.scores", scores)});
}

std::string merges_of(const Header& header) {
  EXPECT_EQ(why_no_tokenizer(header), "");
  return parse_json(tokenizer_json(header), "tokenizer.json")["model"]["merges"].dump(0);
}

TEST(GgufTokenizer, MergesArePairs) {
  const Header header =
      pieces({"a", "b", " ", "a ", "a b", "ab"}, {0.0F, 0.0F, 0.0F, -1.0F, -2.0F, -3.0F});
  EXPECT_EQ(merges_of(header), R"([["a", " "], ["a ", "b"], ["a", "b"]])");
}

TEST(GgufTokenizer, MergesOfAListAreCutWhereTokensAre) {
  const std::vector<std::string> tokens{"a", "b", "c", " ", "a b", "a bc", "bc"};
  const auto merges = [&](const std::vector<std::string>& list) {
    return merges_of(header_of({text_key("tokenizer.ggml.model", "gpt2"),
                                text_key("tokenizer.ggml.pre", "gpt-2"),
                                strings_key("tokenizer.ggml.tokens", tokens),
                                strings_key("tokenizer.ggml.merges", list)}));
  };
  EXPECT_EQ(merges({"b c", "a b c"}), R"([["b", "c"], ["a b", "c"]])");
  // As llama.cpp reads it, where no cut makes tokens.
  EXPECT_EQ(merges({"x y z", " a"}), R"([["x", "y z"], [" a", ""]])");
}

TEST(GgufTokenizer, ScoresThatAreNoNumbersComeLast) {
  const Header header = pieces({"a", "b", "ab", "ba"}, {0.0F, 0.0F, NAN, -5.0F});
  EXPECT_EQ(merges_of(header), R"([["b", "a"], ["a", "b"]])");
}

// Runs of a, and each with a b in every place: a token is made of two others wherever it is cut.
std::vector<std::string> hostile_tokens(std::size_t longest) {
  std::vector<std::string> out;
  for (std::size_t length = 1; length <= longest; ++length) {
    const std::string run(length, 'a');
    out.push_back(run);
    for (std::size_t at = 0; at < length; ++at) {
      out.push_back(run);
      out.back()[at] = 'b';
    }
  }
  return out;
}

// The merges of the first have 400 MB, the fourth power of 200; those of the second are none.
TEST(GgufTokenizer, VocabulariesOfTooManyMergesAreRefused) {
  const auto start = std::chrono::steady_clock::now();
  const std::string many = why_no_tokenizer(pieces(hostile_tokens(200), {}));
  EXPECT_NE(many.find("merges have more than"), std::string::npos) << many;
  std::vector<std::string> wide;
  for (std::size_t i = 0; i < 5000; ++i) {
    wide.push_back(std::to_string(i));
    wide.back().resize(512, 'x');
  }
  const std::string slow = why_no_tokenizer(pieces(wide, {}));
  EXPECT_NE(slow.find("squared bytes"), std::string::npos) << slow;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(GgufVocabulary, MergesWithSpaces) {
  const Json config = Json::object({{"vocab_size", 4}});
  const auto written = [&](bool of_pieces, const Json& merges) {
    Json model = Json::object({{"type", "BPE"},
                               {"byte_fallback", of_pieces},
                               {"vocab", Json::object({{"a ", 0}, {"b", 1}, {"a b", 2}, {"a", 3}})},
                               {"merges", merges}});
    Json cut = Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}});
    Metadata out;
    add_vocabulary(Json::object({{"model", std::move(model)}, {"pre_tokenizer", std::move(cut)}}),
                   Json(), config, out);
    return out;
  };
  const Json spaced = Json::array({Json::array({"a ", "b"})});
  const auto scores = written(true, spaced).at("tokenizer.ggml.scores").numbers();
  EXPECT_EQ(scores, (std::vector<double>{0.0, 0.0, -1.0, 0.0}));
  error_testing::expect_refused(ErrorCode::unsupported, "a merge of 'a ' and 'b'",
                                [&] { (void)written(false, spaced); });
  const Metadata list = written(false, Json::array({Json::array({"a", " b"})}));
  EXPECT_EQ(list.at("tokenizer.ggml.merges").strings(), std::vector<std::string_view>{"a  b"});
}

}  // namespace
}  // namespace octavo::gguf
