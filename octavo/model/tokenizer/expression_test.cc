#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "octavo/base/error.h"
#include "octavo/model/tokenizer/expression_internal.h"
#include "octavo/model/tokenizer/normal_form_internal.h"
#include "octavo/model/tokenizer/unicode_internal.h"

namespace octavo::tokenizer {
namespace {

class ExpressionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!missing_for_expressions().empty() || !missing_for_normal_forms().empty())
      GTEST_SKIP() << missing_for_expressions() << missing_for_normal_forms();
  }
};

// What the first match of the expression is; "none".
std::string found(std::string_view expression, std::string_view text) {
  MatchMemory memory;
  std::string storage;
  Match match;
  if (!Expression(expression).search(with_stand_ins(text, storage), 0, memory, match))
    return "none";
  return std::string(text.substr(match.begin, match.end - match.begin));
}

TEST_F(ExpressionTest, MeansWhatItMeansToOniguruma) {
  EXPECT_EQ(found(R"(\s+)", "a\u180E\u2003\u0085b"), "\u2003\u0085");  // U+180E is no space
  EXPECT_EQ(found(R"(\h+)", "xyzC0FFEE"), "C0FFEE");                   // hexadecimal digits
  EXPECT_EQ(found(R"(\w+)", "-a\u0301_9\u00B2-"), "a\u0301_9\u00B2");
  EXPECT_EQ(found(R"(a{2}+b)", "aaaab"), "aaaab");  // a{2}, repeated
  EXPECT_EQ(found(R"(ba{2}?)", "ba"), "b");         // an optional a{2}
  EXPECT_EQ(found(R"(a{,2}b)", "aaab"), "aab");
  EXPECT_EQ(found(R"(a++a)", "aaa"), "none");  // possessive
  EXPECT_EQ(found(R"(x{a})", "x{a}"), "x{a}");
  EXPECT_EQ(found(R"((a)(?i:b))", "aB"), "aB");
  EXPECT_EQ(found(R"((?i:'s))", "'\u017F"), "'\u017F");
  EXPECT_EQ(found(R"([[:punct:]]+)", "a$\u20AC!b"), "$\u20AC!");  // symbols, too
  EXPECT_EQ(found(R"([a[bc]\-\]]+)", "xcab-]x"), "cab-]");
  EXPECT_EQ(found(R"([^\S\n]+)", "a\n \tb"), " \t");
  EXPECT_EQ(found(R"(\p{^L}\P{N}\p{Letter})", "ab1xy-.z"), "1xy");
  EXPECT_EQ(found(R"(\p{Han}+)", "a\u4E2D\u3001"), "\u4E2D");  // no punctuation used with it
  EXPECT_EQ(found(R"(\u4E2D\x{6587}\x41)", "\u4E2D\u6587A"), "\u4E2D\u6587A");
  EXPECT_EQ(found(R"(^b$)", "a\nb\nc"), "b");
  EXPECT_EQ(found(R"(a.b)", "a\rb"), "a\rb");  // only LF ends a line
  EXPECT_EQ(found(R"(\bab\b)", "xab ab"), "ab");
}

TEST_F(ExpressionTest, YoungCharactersHaveTheirClass) {
  EXPECT_EQ(found(R"(\p{L}+)", "1\U00031350\U0002EBF0"), "\U00031350\U0002EBF0");
  EXPECT_EQ(found(R"(\p{Lu}\p{Ll})", "\U00010D50\U00010D70"), "\U00010D50\U00010D70");
  EXPECT_EQ(stand_in_of('a'), 'a');
  EXPECT_TRUE(is_numeric(0x11DE0));
  EXPECT_TRUE(is_numeric(0xBD));
  EXPECT_FALSE(is_numeric('x'));
}

TEST_F(ExpressionTest, WhatItDoesNotKnowIsRefused) {
  for (const std::string_view bad :
       {"(",          ")",           "a)",       "[a",           "[a&&b]", "[^[^a]]",      "[\\W]",
        "(?<name>a)", "(?s)a",       "a(?i)b",   "\\1",          "\\R",    "\\K",          "\\",
        "*a",         "a{3,2}",      "a{70000}", "\\p{Klingon}", "\\pL",   "(?i:\\p{Lu})", "(*UTF)",
        "[b-a]",      "[[:graph:]]", "\\xFF",    "\\x{D800}",    "\\u12",  "a|*"})
    EXPECT_THROW((void)Expression(bad), Error) << bad;
  EXPECT_THROW((void)Expression(std::string(1000, '(') + std::string(1000, ')')), Error);
  EXPECT_THROW((void)Expression(std::string(70000, 'a')), Error);
}

TEST_F(ExpressionTest, NormalFormsAreThoseOfUnicode9) {
  EXPECT_EQ(normal_form("e\u0301\u0316", NormalForm::nfc), "\u00E9\u0316");
  EXPECT_EQ(normal_form("e\u0301\u0316x", NormalForm::nfd), "e\u0316\u0301x");
  EXPECT_EQ(normal_form("\uFB01\u00BD", NormalForm::nfkc), "fi1\u20442");
  EXPECT_EQ(normal_form("\u1100\u1161\u11A8", NormalForm::nfc), "\uAC01");
  EXPECT_EQ(normal_form("\u32FF", NormalForm::nfkd), "\u32FF");  // of Unicode 12.1
  // A mark of Unicode 10 has no class: marks are not ordered across it.
  EXPECT_EQ(normal_form("a\u0301\u1DFA\u0316", NormalForm::nfd), "a\u0301\u1DFA\u0316");
  EXPECT_EQ(lower_case("\u0130ABC\u1E9E"), "i\u0307abc\u00DF");
}

}  // namespace
}  // namespace octavo::tokenizer
