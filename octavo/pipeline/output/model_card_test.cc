#include <gtest/gtest.h>

#include <string>

#include "octavo/base/error.h"
#include "octavo/pipeline/output/model_card_internal.h"

namespace octavo {
namespace {

using namespace std::string_literals;

const ModelCard kCard{
    .base_model = "owner/name", .tags = {"octavo", "fp8"}, .body = "# Quantized\n\ntext\n"};

bool has(const std::string& whole, std::string_view part) {
  return whole.find(part) != std::string::npos;
}

TEST(ModelCard, AloneIsFrontMatterAndBody) {
  EXPECT_EQ(
      with_card("", kCard),
      "---\nbase_model: \"owner/name\" # octavo\nbase_model_relation: \"quantized\" # octavo\n"
      "tags: # octavo\n- octavo # octavo\n- fp8 # octavo\n---\n"
      "<!-- octavo: model card -->\n# Quantized\n\ntext\n<!-- octavo: end -->\n");
  EXPECT_EQ(without_card(with_card("", kCard)), "");
}

TEST(ModelCard, TheSourcesTextAndFrontMatterStay) {
  const std::string source =
      "---\nlicense: apache-2.0\ntags:\n- text-generation\n- fp8\nlanguage:\n  - en\n"
      "base_model:\n- somebody/base\n---\n\n# Model\n\nAs it was.\n";
  const std::string both = with_card(source, kCard);
  EXPECT_TRUE(both.starts_with(
      "---\nlicense: apache-2.0\ntags:\n- text-generation\n- fp8\n- octavo # octavo\n"
      "language:\n  - en\n"))
      << both;
  // One key of a name, and the old one as a comment.
  EXPECT_TRUE(has(both,
                  "\nbase_model: \"owner/name\" # octavo\n# octavo: base_model:\n# octavo: - "
                  "somebody/base\n"))
      << both;
  EXPECT_TRUE(both.ends_with("<!-- octavo: end -->\n\n# Model\n\nAs it was.\n"));
  EXPECT_EQ(without_card(both), source);
}

TEST(ModelCard, WithoutANameTheSourcesOwnStays) {
  ModelCard card = kCard;
  card.base_model = "";
  EXPECT_FALSE(has(with_card("", card), "base_model"));
  const std::string source = "---\nbase_model: somebody/base\nbase_model_relation: finetune\n---\n";
  const std::string both = with_card(source, card);
  EXPECT_TRUE(both.starts_with(
      "---\nbase_model: somebody/base\nbase_model_relation: finetune\ntags: # octavo\n"))
      << both;
  EXPECT_EQ(without_card(both), source);
}

TEST(ModelCard, ComesBackWhateverItWasPutInto) {
  for (const std::string& source : {
           std::string("# No front matter\n"),
           std::string("text without a line break"),
           std::string("---\na rule, and no front matter\n"),
           std::string("---\r\nlicense: mit\r\ntags: [a, \"b c\"]\r\n---\r\nbody\r\n"),
           std::string("---\ntags:\n---\n"),
           std::string("---\ntags:\n    - deep\n\n# comment\nlicense: mit\n---\nbody"),
           "\xff\xfe bytes \0 of others"s,
       }) {
    const std::string both = with_card(source, kCard);
    EXPECT_EQ(without_card(both), source) << both;
    EXPECT_EQ(with_card(both, kCard), both);  // once, however often
    EXPECT_TRUE(has(both, "# Quantized"));
  }
}

TEST(ModelCard, TagsInBracketsAreKept) {
  const std::string both = with_card("---\ntags: [a, \"b c\"]\n---\n", kCard);
  EXPECT_TRUE(has(both, "tags: # octavo\n- a # octavo\n- \"b c\" # octavo\n- octavo # octavo\n"))
      << both;
  EXPECT_TRUE(has(both, "# octavo: tags: [a, \"b c\"]\n")) << both;
}

TEST(ModelCard, WhatIsNoCardStays) {
  for (const char* text_of_others :
       {"", "text # octavo\n", "---\na: 1 # octavo\n---\n", "<!-- octavo: model card -->\nno end"})
    EXPECT_EQ(without_card(text_of_others), text_of_others);
}

TEST(ModelCard, ANameIsAYamlString) {
  ModelCard card = kCard;
  card.base_model = "a \"b\"\n---\n: c";
  EXPECT_TRUE(has(with_card("", card), "base_model: \"a \\\"b\\\"\\n---\\n: c\" # octavo\n"));
}

}  // namespace
}  // namespace octavo
