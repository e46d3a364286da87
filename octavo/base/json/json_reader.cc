#include "octavo/base/json/json_reader_internal.h"

#include <charconv>
#include <limits>
#include <set>

#include "octavo/base/error.h"
#include "octavo/base/json/json_text_internal.h"

namespace octavo {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Of a number that a double cannot hold: too large, or merely too small? The decimal place of its
// first digit that is not zero says it; near 1 no number is out of range.
bool is_too_large(std::string_view number) {
  const std::size_t e = number.find_first_of("eE");
  const std::string_view digits = number.substr(0, e);
  const std::size_t first = digits.find_first_of("123456789");
  if (first == std::string_view::npos) return false;
  if (e != std::string_view::npos && number[e + 1] == '-') {
    // A text of a hundred million digits could outweigh its exponent; compare the two.
    std::uint64_t exponent = std::numeric_limits<std::uint64_t>::max();
    std::from_chars(number.data() + e + 2, number.data() + number.size(), exponent);
    const std::size_t point = std::min(digits.find('.'), digits.size());
    return point > first && point - first > exponent;
  }
  if (e != std::string_view::npos) {
    std::uint64_t exponent = std::numeric_limits<std::uint64_t>::max();
    const std::size_t skip = number[e + 1] == '+' ? 2 : 1;
    std::from_chars(number.data() + e + skip, number.data() + number.size(), exponent);
    const std::size_t point = std::min(digits.find('.'), digits.size());
    return point > first || first - point <= exponent;
  }
  return std::min(digits.find('.'), digits.size()) > first;
}

}  // namespace

void JsonReader::skip_space() {
  while (is_next(' ') || is_next('\n') || is_next('\r') || is_next('\t')) ++at_;
}

std::string JsonReader::found() const {
  return at_ < text_.size() ? text("'", shown(text_.substr(at_, 1)), "'") : "the end";
}

void JsonReader::fail_at_next(std::string_view expected) const {
  fail(text("got ", found(), "; expected ", expected));
}

void JsonReader::expect(char c, std::string_view wanted) {
  skip_space();
  if (!is_next(c)) fail_at_next(wanted);
  ++at_;
}

void JsonReader::begin(char opening, std::string_view what) {
  expect(opening, what);
  if (depth_ == kMaxDepth) fail(text("got more than ", kMaxDepth, " nested levels"));
  is_first_[static_cast<std::size_t>(++depth_)] = true;
}

bool JsonReader::next(char closing) {
  skip_space();
  if (is_next(closing)) {
    ++at_;
    --depth_;
    return false;
  }
  bool& is_first = is_first_[static_cast<std::size_t>(depth_)];
  if (!is_first) {
    if (!is_next(',')) fail(text("got ", found(), "; expected ',' or '", closing, "'"));
    ++at_;
    skip_space();
    if (is_next(closing)) fail(text("got '", closing, "' behind a comma; expected a value"));
  }
  is_first = false;
  return true;
}

bool JsonReader::next_key(std::string& key) {
  if (!next('}')) return false;
  key = string();
  expect(':', "':' behind a key");
  return true;
}

std::string JsonReader::string() {
  expect('"', "a string");
  std::string out;
  for (;;) {
    // Whole stretches at a time; only quotes, escapes and control characters end one.
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
           static_cast<unsigned char>(text_[at_]) >= 0x20) {
      ++at_;
    }
    out.append(text_, start, at_ - start);
    if (at_ == text_.size()) fail("got the end inside a string");
    if (text_[at_] == '"') break;
    if (text_[at_] != '\\') fail("got a control character inside a string; expected it escaped");
    ++at_;
    escape(out);
  }
  ++at_;
  return out;
}

void JsonReader::escape(std::string& out) {
  constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  const char kind = at_ < text_.size() ? text_[at_] : '\0';
  if (kind != 'u') {
    const std::size_t known = kEscapes.find(kind);
    if (known == std::string_view::npos) fail("got an escape that JSON does not have");
    out += kMeanings[known];
    ++at_;
    return;
  }
  ++at_;
  std::uint32_t point = four_hex_digits();
  if (point >= 0xDC00 && point <= 0xDFFF) fail("got a lone surrogate; expected a pair");
  if (point >= 0xD800 && point <= 0xDBFF) {
    if (text_.substr(at_, 2) != "\\u") fail("got a lone surrogate; expected a pair");
    at_ += 2;
    const std::uint32_t low = four_hex_digits();
    if (low < 0xDC00 || low > 0xDFFF) fail("got a lone surrogate; expected a pair");
    point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(out, point);
}

std::uint32_t JsonReader::four_hex_digits() {
  const std::string_view digits = text_.substr(at_, 4);
  std::uint32_t value = 0;
  const auto [stop, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() < 4 || error != std::errc{} || stop != digits.data() + 4) {
    fail("got an incomplete \\u escape; expected four hexadecimal digits");
  }
  at_ += 4;
  return value;
}

std::size_t JsonReader::skip_digits() {
  const std::size_t start = at_;
  while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
  return at_ - start;
}

std::uint64_t JsonReader::integer() {
  const std::string_view digits = number();
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || stop != digits.data() + digits.size()) {
    at_ -= digits.size();
    fail(text("got ", shown(digits), "; expected an integer from 0 to 2^64 - 1"));
  }
  return value;
}

void JsonReader::skip_number() {
  const std::size_t start = at_;
  if (is_next('-')) ++at_;
  const std::size_t leading = at_;
  if (skip_digits() == 0) fail_at_next("a number");
  if (text_[leading] == '0' && at_ > leading + 1) fail("got a number that begins with 0");
  if (is_next('.')) {
    ++at_;
    if (skip_digits() == 0) fail_at_next("a digit behind '.'");
  }
  if (is_next('e') || is_next('E')) {
    ++at_;
    if (is_next('+') || is_next('-')) ++at_;
    if (skip_digits() == 0) fail_at_next("an exponent");
  }
  double value = 0;
  const auto [stop, error] = std::from_chars(text_.data() + start, text_.data() + at_, value);
  if (error == std::errc::result_out_of_range && is_too_large(text_.substr(start, at_ - start))) {
    at_ = start;
    fail("got a number beyond the range of a double");
  }
}

bool JsonReader::null() {
  skip_space();
  if (!is_next('n')) return false;
  skip_word("null");
  return true;
}

std::string_view JsonReader::number() {
  skip_space();
  const std::size_t start = at_;
  skip_number();
  return text_.substr(start, at_ - start);
}

bool JsonReader::word(std::string_view word) {
  skip_space();
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

char JsonReader::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

void JsonReader::skip_word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) fail_at_next(word);
  at_ += word.size();
}

void JsonReader::skip_value(bool unique_keys) {
  const char first = peek();
  if (first == '{') {
    begin_object();
    std::set<std::string> seen;
    for (std::string key; next_key(key);) {
      if (unique_keys && !seen.insert(key).second) fail(text("got key '", shown(key), "' twice"));
      skip_value(unique_keys);
    }
  } else if (first == '[') {
    begin_array();
    while (next_element()) skip_value(unique_keys);
  } else if (first == '"') {
    (void)string();
  } else if (first == '-' || is_digit(first)) {
    skip_number();
  } else if (first == 't') {
    skip_word("true");
  } else if (first == 'f') {
    skip_word("false");
  } else if (first == 'n') {
    skip_word("null");
  } else {
    fail_at_next("a value");
  }
}

void JsonReader::end() {
  skip_space();
  if (at_ < text_.size()) fail(text("got ", found(), " behind the end; expected nothing"));
}

}  // namespace octavo
