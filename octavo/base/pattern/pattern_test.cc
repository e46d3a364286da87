// The oracle is the standard library's matcher, on expressions and texts so short that it cannot
// take long.
#include "octavo/base/pattern/pattern.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

// GCC 12 with sanitizers takes a union in <regex> for uninitialised.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <regex>

#include "octavo/base/error.h"

namespace octavo {
namespace {

std::string refusal(const std::string& expression) {
  try {
    const Pattern pattern(expression);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Pattern, FindsWhatIsWritten) {
  EXPECT_TRUE(Pattern("down_proj").is_in("model.layers.0.mlp.down_proj.weight"));
  EXPECT_FALSE(Pattern("down_proj").begins("model.layers.0.mlp.down_proj.weight"));
  EXPECT_TRUE(Pattern("model.*down").begins("model.layers.0.mlp.down_proj.weight"));
  EXPECT_TRUE(Pattern("layers\\.(0|1)\\.").is_in("model.layers.1.x"));
  EXPECT_FALSE(Pattern("layers\\.(0|1)\\.").is_in("model.layers.11.x"));
  EXPECT_TRUE(Pattern("^a{2,3}$").is_in("aaa"));
  EXPECT_FALSE(Pattern("^a{2,3}$").is_in("aaaa"));
  EXPECT_TRUE(Pattern("\\bgate\\b").is_in("mlp.gate.weight"));
  EXPECT_FALSE(Pattern("\\bgate\\b").is_in("mlp.gate_proj.weight"));
  EXPECT_TRUE(Pattern("[^\\d.]+\\x2e[0-9a-f-]").is_in("layers.-1"));
  EXPECT_TRUE(Pattern("").is_in(""));
  EXPECT_TRUE(Pattern("(?:a|)b").is_in("b"));
  EXPECT_TRUE(Pattern("\xC3\xA9").is_in("caf\xC3\xA9"));
}

TEST(Pattern, SaysWhatItDoesNotTake) {
  for (const char* const wrong :
       {"(",     ")",           "a)",      "[",       "[a",      "[]",        "[^]",
        "[z-a]", "[[:alpha:]]", "*",       "+a",      "a**",     "a*+",       "a{",
        "a{2",   "a{3,2}",      "a{1001}", "{2}",     "\\",      "\\1",       "(a)\\1",
        "\\A",   "\\x4",        "\\u0041", "(?=a)*",  "(?!a",    "(?<=a)",    "(?P<n>a)",
        "(?i)a", "^*",          "(?",      "[\\d-a]", "[a-\\w]", "[\xC3\xA9]"})
    EXPECT_NE(refusal(wrong), "") << wrong;
  EXPECT_NE(refusal("(?<!lm_head)").find("'(?!'"), std::string::npos);
  EXPECT_NE(refusal("(((a{99}){99}){99}){99}").find("too many repetitions"), std::string::npos);
  EXPECT_NE(refusal("((((){999}){999}){999}){999}").find("too many"), std::string::npos);
  EXPECT_NE(refusal(std::string(100'000, '(')).find("in one another"), std::string::npos);
  EXPECT_NE(refusal(std::string(100'000, 'a')).find("states"), std::string::npos);
  EXPECT_EQ(refusal(std::string(90, '(') + "a" + std::string(90, ')')), "");
}

TEST(Pattern, LooksAhead) {
  const Pattern others("^(?!.*(?:gate|up)_proj$).*$");
  EXPECT_TRUE(others.begins("model.layers.0.mlp.down_proj"));
  EXPECT_FALSE(others.begins("model.layers.0.mlp.gate_proj"));
  EXPECT_TRUE(others.begins("model.layers.0.mlp.gate_proj.weight"));
  EXPECT_TRUE(Pattern("(?=.*mlp)model").begins("model.mlp"));
  EXPECT_FALSE(Pattern("(?=.*mlp)model").begins("model.attn"));
  EXPECT_TRUE(Pattern("a(?!b)").is_in("abac"));
  EXPECT_FALSE(Pattern("a(?!b)").is_in("abab"));
  EXPECT_TRUE(Pattern("(?:(?!b).){3}$").is_in("bbaaa"));
  EXPECT_FALSE(Pattern("^(?:(?!b).){3}$").is_in("aba"));
  EXPECT_TRUE(Pattern("(?!(?!a))a").begins("ab"));  // one inside the other
  EXPECT_FALSE(Pattern("(?!(?=a)..b)a").begins("axb"));
  EXPECT_TRUE(Pattern("x(?=\\b)").is_in("x.y"));
  EXPECT_TRUE(Pattern("\xC3\xA9(?=\xE4\xB8\xAD.)").is_in("a\xC3\xA9\xE4\xB8\xAD\xC3\xA9"));
}

// Where Python's re and ECMAScript differ, Python's, with which loaders read a list.
TEST(Pattern, MeansWhatPythonMeans) {
  EXPECT_TRUE(Pattern("a.b").is_in("a\rb"));
  EXPECT_FALSE(Pattern("a.b").is_in("a\nb"));
  EXPECT_TRUE(Pattern("a$").is_in("a\n"));
  EXPECT_FALSE(Pattern("a$").is_in("a\nb"));
  EXPECT_TRUE(Pattern("\\s").is_in("\x1f"));
  EXPECT_TRUE(Pattern("^caf.$").is_in("caf\xC3\xA9"));
  EXPECT_TRUE(Pattern("^(?:\xC3\xA9){2}$").is_in("\xC3\xA9\xC3\xA9"));
  EXPECT_TRUE(Pattern("^\xC3\xA9+$").is_in("\xC3\xA9\xC3\xA9"));
  EXPECT_TRUE(Pattern("^\\xe9$").is_in("\xC3\xA9"));
  EXPECT_TRUE(Pattern("^[^a]$").is_in("\xE4\xB8\xAD"));
  EXPECT_TRUE(Pattern("^\\w+$").is_in("caf\xC3\xA9"));
  EXPECT_FALSE(Pattern("caf\\b").is_in("caf\xC3\xA9"));
  EXPECT_TRUE(Pattern("^.$").is_in("\xC3"));  // no UTF-8: a character of its own
}

// Expressions of the subset at random, such that the standard library takes them too.
class Expressions {
 public:
  explicit Expressions(unsigned seed) : random_(seed) {}

  std::string alternatives(int depth) {
    std::string out = sequence(depth);
    while (below(4) == 0) out += "|" + sequence(depth);
    return out;
  }
  std::string text() {
    std::string out;
    for (int i = below(9); i > 0; --i) out += kLetters[static_cast<std::size_t>(below(5))];
    return out;
  }

 private:
  static constexpr std::string_view kLetters = "ab.1-";
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  std::string sequence(int depth) {
    std::string out;
    for (int i = below(4); i > 0; --i) out += atom(depth);
    return out;
  }
  std::string atom(int depth) {
    constexpr std::array<const char*, 4> kAssertions{"^", "$", "\\b", "\\B"};
    constexpr std::array<const char*, 12> kAtoms{"a",   "b",    "1",    "\\.",   ".",   "\\d",
                                                 "\\w", "[ab]", "[^a]", "[.-1]", "\\s", "[\\da]"};
    constexpr std::array<const char*, 9> kRepeats{"",  "",    "",      "*",   "+",
                                                  "?", "{2}", "{1,2}", "{1,}"};
    if (below(8) == 0) return kAssertions[static_cast<std::size_t>(below(4))];
    std::string out = kAtoms[static_cast<std::size_t>(below(12))];
    if (depth > 0 && below(4) == 0)
      out = (below(2) == 0 ? "(" : "(?:") + alternatives(depth - 1) + ")";
    return out + kRepeats[static_cast<std::size_t>(below(9))];
  }
  std::mt19937 random_;
};

TEST(Pattern, AgreesWithTheStandardLibrary) {
  Expressions random(7);
  int found = 0, tried = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string expression = random.alternatives(2);
    const std::regex theirs(expression);
    const Pattern ours(expression);
    for (int k = 0; k < 5; ++k) {
      const std::string text = random.text();
      const bool wanted = std::regex_search(text, theirs);
      ASSERT_EQ(ours.is_in(text), wanted) << "'" << expression << "' in '" << text << "'";
      ASSERT_EQ(ours.begins(text),
                std::regex_search(text, theirs, std::regex_constants::match_continuous))
          << "'" << expression << "' at the beginning of '" << text << "'";
      found += wanted ? 1 : 0;
      ++tried;
    }
  }
  EXPECT_GT(found, tried / 10);
  EXPECT_LT(found, tried * 9 / 10);
}

// The standard library takes minutes for the first of these. The limit is a thousand times what
// they take.
TEST(Pattern, HostileExpressionsTakeNoTime) {
  const std::string text(2000, 'a');
  const auto start = std::chrono::steady_clock::now();
  for (const char* const hostile :
       {"(a*)*b", "(a|a)*b", "(a+)+$b", "(.*)*(.*)*(.*)*b", "(a|aa)+$b", "((a{0,30}){0,5}){0,5}b",
        "(a?){500}a{500}b", "(?!(?!(a+)+b))(a+)+b", "((?=(a*)*b)(a|aa))+b"})
    EXPECT_FALSE(Pattern(hostile).is_in(text)) << hostile;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

// Whatever bytes an expression has, it is taken or refused.
TEST(Pattern, AnyBytes) {
  std::mt19937 random(3);
  constexpr std::string_view kBytes = "ab()[]{}|*+?^$\\.,-12xdbB:!=<\n\xC3";
  int taken = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string expression;
    for (unsigned n = random() % 12; n > 0; --n) expression += kBytes[random() % kBytes.size()];
    try {
      const Pattern pattern(expression);
      (void)pattern.is_in("ab12.\n\xC3");
      ++taken;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace octavo
