// Random JSON through octavo's parser and nlohmann-json's: the same values, and after a mutation of
// one byte the same verdict. Where the two differ on purpose (docs/design/json-and-patterns.md) the
// test says so.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"

namespace octavo {
namespace {

using Theirs = nlohmann::ordered_json;

class Documents {
 public:
  explicit Documents(unsigned seed) : random_(seed) {}

  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }

  std::string value(int depth) {
    switch (below(depth > 0 ? 9 : 6)) {
      case 0:
        return one_of({"null", "true", "false"});
      case 1:
      case 2:
        return number();
      case 6:
        return list('[', ']', [&](unsigned) { return value(depth - 1); });
      case 7:
      case 8:
        return list('{', '}', [&](unsigned i) {
          // Keys differ by their number: octavo refuses duplicates.
          return string(std::to_string(i)) + space() + ":" + space() + value(depth - 1);
        });
      default:
        return string("");
    }
  }

 private:
  std::string one_of(std::initializer_list<const char*> choices) {
    return choices.begin()[below(static_cast<unsigned>(choices.size()))];
  }
  std::string space() { return one_of({"", "", "", " ", "\n", "\t", "\r\n  "}); }
  std::string digits() {
    std::string out = one_of({"1", "5", "9"});
    const unsigned most = below(8) == 0 ? 40 : 6;
    for (unsigned n = below(most); n > 0; --n) out += static_cast<char>('0' + below(10));
    return out;
  }
  std::string number() {
    std::string out = one_of({"", "-"}) + (below(4) == 0 ? "0" : digits());
    if (below(2) == 0) out += "." + one_of({"0", "00", ""}) + digits();
    if (below(4) == 0)
      out += one_of({"e", "E"}) + one_of({"", "+", "-"}) + one_of({"0", "7", "42"});
    return out;
  }
  std::string string(const std::string& begin) {
    std::string out = "\"" + begin;
    for (unsigned n = below(6); n > 0; --n)
      out += one_of({"a", "layers", ".", "/", "\\\"", "\\\\", "\\/", "\\n", "\\t", "\\u0041",
                     "\\u00e9", "\\ud83d\\ude00", "\\u0000", "\xC3\xA9", "\xE4\xB8\xAD",
                     "\xF0\x9F\x98\x80", "\x7F"});
    return out + "\"";
  }
  template <typename Item>
  std::string list(char open, char close, Item item) {
    std::string out(1, open);
    const unsigned count = below(5);
    for (unsigned i = 0; i < count; ++i) out += (i > 0 ? "," : "") + space() + item(i) + space();
    return out + space() + close;
  }
  std::mt19937 random_;
};

// The same tree, numbers compared as both read them.
void expect_same(const Json& ours, const Theirs& theirs) {
  ASSERT_EQ(ours.is_null(), theirs.is_null());
  ASSERT_EQ(ours.is_number(), theirs.is_number());
  ASSERT_EQ(ours.is_string(), theirs.is_string());
  ASSERT_EQ(ours.is_array(), theirs.is_array());
  ASSERT_EQ(ours.is_object(), theirs.is_object());
  if (theirs.is_boolean()) {
    EXPECT_EQ(ours.boolean_or(!theirs.get<bool>()), theirs.get<bool>());
  } else if (theirs.is_number_float()) {
    EXPECT_EQ(ours.number_or(0.125), theirs.get<double>());
  } else if (theirs.is_number_unsigned() && theirs.get<std::uint64_t>() > INT64_MAX) {
    EXPECT_EQ(ours.number_or(0.125), theirs.get<double>());
    EXPECT_EQ(ours.integer_or(-7), -7);
  } else if (theirs.is_number()) {
    EXPECT_EQ(ours.integer_or(-7), theirs.get<std::int64_t>());
  } else if (theirs.is_string()) {
    EXPECT_EQ(ours.string_or("?"), theirs.get<std::string>());
  } else if (theirs.is_array()) {
    ASSERT_EQ(ours.elements().size(), theirs.size());
    for (std::size_t i = 0; i < theirs.size(); ++i) expect_same(ours.elements()[i], theirs[i]);
  } else if (theirs.is_object()) {
    ASSERT_EQ(ours.members().size(), theirs.size());
    auto member = ours.members().begin();
    for (const auto& [key, value] : theirs.items()) {
      ASSERT_EQ(member->first, key);
      expect_same((member++)->second, value);
    }
  }
}

TEST(JsonDifferential, RandomDocumentsHaveTheSameValues) {
  Documents random(11);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random.value(5);
    const Json ours = parse_json(text, "random");
    expect_same(ours, Theirs::parse(text));
    for (const int indent : {0, 2}) expect_same(ours, Theirs::parse(ours.dump(indent)));
    if (HasFailure()) FAIL() << text;
  }
}

TEST(JsonDifferential, MutationsHaveTheSameVerdict) {
  // No NUL, where nlohmann-json takes the text to end.
  constexpr std::string_view kBytes = "{}[]\":,.-+eE01aftnu\\/ \n\x01\x7F\x80\xC3\xED\xFF";
  Documents random(12);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 30'000; ++i) {
    std::string text = random.value(3);
    const std::size_t at = random.below(static_cast<unsigned>(text.size()));
    const char byte = kBytes[random.below(static_cast<unsigned>(kBytes.size()))];
    const unsigned how = random.below(4);
    if (how == 0) text.erase(at, 1);
    if (how == 1) text.insert(at, 1, byte);
    if (how == 2) text[at] = byte;
    if (how == 3) text.resize(at);
    const Theirs theirs = Theirs::parse(text, nullptr, false);
    try {
      const Json ours = parse_json(text, "mutated");
      ASSERT_FALSE(theirs.is_discarded()) << "octavo alone accepts " << text;
      expect_same(ours, theirs);
      ++accepted;
    } catch (const Error& error) {
      // nlohmann-json keeps the last of equal keys.
      const bool is_duplicate = std::string_view(error.what()).find("' twice") != std::string::npos;
      ASSERT_TRUE(theirs.is_discarded() || is_duplicate) << error.what() << " in " << text;
      ++refused;
    }
    if (HasFailure()) FAIL() << text;
  }
  EXPECT_GT(accepted, 3000);
  EXPECT_GT(refused, 3000);
}

}  // namespace
}  // namespace octavo
