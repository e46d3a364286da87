#include "octavo/base/json/json_reader_internal.h"

#include <gtest/gtest.h>

#include <functional>

#include "octavo/base/json/json_text_internal.h"

namespace octavo {
namespace {

// "" when the text is a good value, else what is wrong with it.
std::string problem(std::string_view json, bool unique_keys = false) {
  try {
    JsonReader reader(json);
    reader.skip_value(unique_keys);
    reader.end();
    return "";
  } catch (const JsonProblem& found) {
    EXPECT_LE(found.at, json.size()) << json;
    EXPECT_FALSE(found.what.empty()) << json;
    return found.what;
  }
}

TEST(JsonReader, TakesJson) {
  for (const std::string_view good :
       {"{}", "[]", "0", "-0", "10", "1.5e-3", "1E+2", "true", "false", "null", "\"\"",
        " [ 1 , 2 ] ", R"({"a":{"b":[{}]},"a":1})", "\"\x7f\"", R"("\u0000\ud83d\ude00")",
        "\t\r\n 1 \n"}) {
    EXPECT_EQ(problem(good), "") << good;
  }
}

TEST(JsonReader, RefusesWhatIsNoJson) {
  for (const std::string_view bad : {"",
                                     " ",
                                     "{",
                                     "[",
                                     "]",
                                     "[1",
                                     "[1,",
                                     "[1,]",
                                     "[,1]",
                                     "[1 2]",
                                     "{\"a\"}",
                                     "{\"a\":}",
                                     "{\"a\":1,}",
                                     "{1:1}",
                                     "{a:1}",
                                     "[1}",
                                     "01",
                                     "-",
                                     "+1",
                                     "1.",
                                     ".5",
                                     "1e",
                                     "1e+",
                                     "0x1",
                                     "NaN",
                                     "tru",
                                     "nul",
                                     "True",
                                     "'a'",
                                     "\"",
                                     "\"a",
                                     "\"\\\"",
                                     "\"\\q\"",
                                     "\"\\u12\"",
                                     "\"\\u12g4\"",
                                     "\"\\ud800\"",
                                     "\"\\udc00\"",
                                     "\"\\ud800\\u0041\"",
                                     "\"\n\"",
                                     "1 1",
                                     "{} {}",
                                     "1e999",
                                     "//",
                                     "\xEF\xBB\xBF{}"}) {
    EXPECT_NE(problem(bad), "") << bad;
  }
}

TEST(JsonReader, DepthHasALimit) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_EQ(problem(nested(JsonReader::kMaxDepth)), "");
  EXPECT_NE(problem(nested(JsonReader::kMaxDepth + 1)), "");
  EXPECT_NE(problem(std::string(1'000'000, '[')), "");  // no stack is used up by it
  EXPECT_EQ(problem("[" + nested(100) + "," + nested(100) + "]"), "");
}

TEST(JsonReader, KeysTwiceOnlyWhenAllowed) {
  EXPECT_EQ(problem(R"([{"a":1,"a":2}])"), "");
  EXPECT_NE(problem(R"([{"a":1,"\u0061":2}])", true), "");
  EXPECT_EQ(problem(R"([{"a":1},{"a":2}])", true), "");
}

TEST(JsonReader, StringsMeanWhatTheyShould) {
  EXPECT_EQ(JsonReader(R"("a\"\\\/\b\f\n\r\t")").string(), "a\"\\/\b\f\n\r\t");
  EXPECT_EQ(JsonReader(R"("\u0041\u00e9\u20AC\ud83d\ude00")").string(), "A\u00e9\u20ac\U0001f600");
  EXPECT_EQ(JsonReader(R"("\u0000")").string(), std::string(1, '\0'));
}

TEST(JsonReader, IntegersAreExact) {
  EXPECT_EQ(JsonReader("0").integer(), 0U);
  EXPECT_EQ(JsonReader("9007199254740993").integer(), 9007199254740993U);  // no double has this
  EXPECT_EQ(JsonReader("18446744073709551615").integer(), UINT64_MAX);
  for (const std::string_view bad :
       {"18446744073709551616", "-1", "-0", "1.0", "1e0", "\"1\"", "null", "01", ""}) {
    EXPECT_THROW((void)JsonReader(bad).integer(), JsonProblem) << bad;
  }
}

TEST(JsonReader, Utf8) {
  constexpr auto kGood = std::string_view::npos;
  for (const std::string_view good : {"", "a", "\u0080", "\u07ff", "\u0800", "\ud7ff", "\ue000",
                                      "\uffff", "\U00010000", "\U0010ffff", "\x7f"}) {
    EXPECT_EQ(find_bad_utf8(good), kGood) << good;
  }
  for (const std::string_view bad :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2 ", "\xE0\x9F\xBF", "\xE1\x80",
        "\xED\xA0\x80", "\xEF\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xF0\x90\x80", "\xFF"}) {
    EXPECT_EQ(find_bad_utf8(bad), 0U);
    EXPECT_EQ(find_bad_utf8("ab" + std::string(bad) + "c"), 2U);
  }
}

}  // namespace
}  // namespace octavo
