#include "octavo/base/json/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "octavo/base/error.h"

namespace octavo {
namespace {

std::string message_of(std::string_view text) {
  try {
    (void)parse_json(text, "some/config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

// Output of Python's json.dump(indent=2); it round-trips unchanged.
constexpr std::string_view kConfig = R"({
  "architectures": [
    "LlamaForCausalLM"
  ],
  "bos_token_id": 1,
  "big": 123456789012345678901234567890,
  "eps": 1e-05,
  "exact": 0.1000000000000000055511151231257827,
  "minus": -0,
  "limit": [
    0.0,
    Infinity,
    -Infinity,
    NaN
  ],
  "empty": {},
  "none": [],
  "nothing": null,
  "nested": {
    "z": true,
    "a": false
  },
  "text": "a \"quoted\" \\ \n\u0001 é"
})";

TEST(Json, UnchangedContentRoundTrips) {
  EXPECT_EQ(parse_json(kConfig, "c").dump(2), kConfig);
  EXPECT_EQ(parse_json(R"( {"b":[1,{"c" : 2.50}],"a":"x"} )", "c").dump(0),
            R"({"b": [1, {"c": 2.50}], "a": "x"})");
  const Json config = parse_json(kConfig, "c");
  EXPECT_EQ(parse_json(config.dump(0), "c"), config);
}

TEST(Json, ValuesOfTheRightKindAndNoOthers) {
  const Json config = parse_json(kConfig, "c");
  EXPECT_EQ(config["bos_token_id"].integer_or(-1), 1);
  EXPECT_EQ(config["big"].integer_or(-1), -1);  // does not fit
  EXPECT_EQ(config["eps"].integer_or(-1), -1);
  EXPECT_EQ(config["eps"].number_or(0), 1e-05);
  EXPECT_EQ(config["big"].number_or(0), 123456789012345678901234567890.0);
  EXPECT_EQ(config["text"].number_or(7), 7);
  EXPECT_TRUE(std::isinf(config["limit"].elements()[1].number_or(0)));
  EXPECT_TRUE(std::isnan(config["limit"].elements()[3].number_or(0)));
  EXPECT_TRUE(config["nested"]["z"].boolean_or(false));
  EXPECT_FALSE(config["nested"]["a"].boolean_or(true));
  EXPECT_TRUE(config["eps"].boolean_or(true));
  EXPECT_EQ(config["text"].string_or(""), "a \"quoted\" \\ \n\x01 é");
  EXPECT_EQ(config["architectures"].elements()[0].string_or(""), "LlamaForCausalLM");
  // Chains that lead nowhere end in null.
  EXPECT_TRUE(config["text"]["no"]["such"].is_null());
  EXPECT_TRUE(config["nothing"].is_null());
  EXPECT_TRUE(config.has("nothing"));
  EXPECT_FALSE(config.has("something"));
  EXPECT_TRUE(config["eps"].elements().empty());
  EXPECT_TRUE(config["limit"].members().empty());
}

TEST(Json, ChangesKeepTheOrderOfTheRest) {
  Json config = parse_json(R"({"a": 1, "b": 2, "c": 3})", "c");
  config.set("b", "two");
  config.set("d", Json::object({{"x", 1.5}, {"y", Json::array({1, 2})}}));
  config.remove("a");
  config.remove("nothing");
  EXPECT_EQ(config.dump(0), R"({"b": "two", "c": 3, "d": {"x": 1.5, "y": [1, 2]}})");
  Json list;
  list.push(true);
  list.push(Json());
  EXPECT_EQ(list.dump(0), "[true, null]");
  Json made;
  made.set("k", std::uint64_t{18446744073709551615U});
  EXPECT_EQ(made.dump(0), R"({"k": 18446744073709551615})");
  EXPECT_THROW(list.set("a", 1), Error);
  EXPECT_THROW(made.push(1), Error);
}

TEST(Json, DoublesReadBackAndStayJson) {
  for (const double value : {0.0, -0.0, 0.1, 1e300, 5e-324, 123456789.0, 1.0 / 3.0}) {
    const Json read = parse_json(Json(value).dump(), "d");
    EXPECT_EQ(read.number_or(9), value);
    EXPECT_EQ(std::signbit(read.number_or(9)), std::signbit(value));
  }
  // Too small for a double: zero, as Python has it.
  EXPECT_EQ(parse_json("1e-400", "d").number_or(9), 0.0);
  EXPECT_TRUE(std::signbit(parse_json("-0.1E-999999999999999999999", "d").number_or(9)));
  EXPECT_TRUE(Json(std::numeric_limits<double>::infinity()).is_null());
  EXPECT_TRUE(Json(std::nan("")).is_null());
}

// A text of small values, two bytes each, decides how many of these are held at a time.
TEST(Json, AValueTakesLittleMemory) { EXPECT_LE(sizeof(Json), 40U); }

TEST(Json, RefusalsNameTheFileAndTheByte) {
  EXPECT_EQ(message_of("{\"a\": tru}").substr(0, 37), "[json] 'some/config.json' at byte 6: ");
  for (const std::string_view none : {"[x]", "[tru]", "\xEF\xBB\xBF[]", "["})
    EXPECT_NE(message_of(none).find("expected a value"), std::string::npos) << message_of(none);
  for (const std::string_view bad :
       {"", "{", "[1,]", "{\"a\":1,}", "nul", "Nan", "Infinit", "1 2", "{'a': 1}", "[1e999]",
        "{\"a\": 1, \"\\u0061\": 2}", "\"\xff\"", "-", "True"}) {
    EXPECT_NE(message_of(bad), "") << bad;
  }
  EXPECT_NE(message_of(std::string(100'000, '[')), "");
  EXPECT_EQ(message_of(std::string(127, '[') + std::string(127, ']')), "");
  EXPECT_NE(message_of(std::string(128, '[') + std::string(128, ']')), "");
}

}  // namespace
}  // namespace octavo
