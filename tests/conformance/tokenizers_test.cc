// Small tokenizers of every family's kind: ids and decoded text are those of PyPI's `tokenizers`
// (generate_tokenizers.py).
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/model/tokenizer/tokenizer.h"

namespace octavo {
namespace {

Json read_vectors() {
  std::ifstream file(OCTAVO_SOURCE_DIR "/tests/conformance/tokenizers.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse_json(text, "tokenizers.json");
}

TEST(TokenizerVectors, EveryKindGivesTheIdsAndTheTextOfThePackage) {
  if (const std::string why = Tokenizer::why_unavailable(); !why.empty()) GTEST_SKIP() << why;
  const Json vectors = read_vectors();
  const std::vector<Json>& texts = vectors["texts"].elements();
  ASSERT_GE(texts.size(), 18U);
  ASSERT_GE(vectors["kinds"].members().size(), 19U);
  for (const auto& [name, kind] : vectors["kinds"].members()) {
    const Tokenizer tokenizer = Tokenizer::from_json(kind["tokenizer"].dump(0));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::string label = name + ", text " + std::to_string(i);
      std::vector<std::int32_t> wanted;
      for (const Json& id : kind["ids"].elements()[i].elements())
        wanted.push_back(static_cast<std::int32_t>(id.integer_or(-1)));
      EXPECT_EQ(tokenizer.encode(texts[i].string_or("none")), wanted) << label;
      const std::string_view decoded = kind["decoded"].elements()[i].string_or("none");
      EXPECT_EQ(tokenizer.decode(wanted), decoded) << label;
      Tokenizer::Stream stream(tokenizer);
      std::string streamed;
      for (const std::int32_t id : wanted) streamed += stream.put(id);
      streamed += stream.finish();
      EXPECT_EQ(streamed, decoded) << label;
    }
  }
}

}  // namespace
}  // namespace octavo
