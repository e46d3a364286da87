// A pull parser for JSON: strict (RFC 8259), exact integers, nothing built that was not asked for.
// The library depends on the standard library alone; and general parsers accept what a safetensors
// header must not have (integers through doubles, duplicate keys, text after the end) or build a
// DOM whose size a hostile file decides. json.h builds its DOM with this parser.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace octavo {

// A parse error and its byte offset. The caller, which knows the file name, turns it into an Error.
struct JsonProblem {
  std::string what;
  std::size_t at = 0;
};

class JsonReader {
 public:
  static constexpr int kMaxDepth = 127;  // nested arrays and objects, as in the Rust reader

  // The text must be UTF-8 and outlive the reader. Every member throws JsonProblem.
  explicit JsonReader(std::string_view text) : text_(text) {}

  // begin_object(); while (next_key(key)) { ... read one value ... }
  void begin_object() { begin('{', "an object"); }
  [[nodiscard]] bool next_key(std::string& key);
  // begin_array(); while (next_element()) { ... read one value ... }
  void begin_array() { begin('[', "an array"); }
  [[nodiscard]] bool next_element() { return next(']'); }

  [[nodiscard]] std::string string();
  [[nodiscard]] std::uint64_t integer();  // 0 .. 2^64 - 1, digits alone
  [[nodiscard]] bool null();              // takes a null if there is one
  // The digits of a number as they stand; one beyond a double's range is an error.
  [[nodiscard]] std::string_view number();
  [[nodiscard]] bool word(std::string_view word);  // takes it if it is next
  [[nodiscard]] char peek();          // the first character of what comes next; NUL at the end
  void skip_value(bool unique_keys);  // any value; checked, not kept
  void end();                         // nothing but white space follows
  [[noreturn]] void fail(std::string what) const { throw JsonProblem{std::move(what), at_}; }
  [[noreturn]] void fail_at_next(std::string_view expected) const;  // names the next character

 private:
  void begin(char opening, std::string_view what);
  [[nodiscard]] bool next(char closing);
  void skip_space();
  [[nodiscard]] bool is_next(char c) const { return at_ < text_.size() && text_[at_] == c; }
  [[nodiscard]] std::string found() const;
  void expect(char c, std::string_view wanted);
  void escape(std::string& out);
  [[nodiscard]] std::uint32_t four_hex_digits();
  void skip_number();
  std::size_t skip_digits();
  void skip_word(std::string_view word);

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::array<bool, kMaxDepth + 1> is_first_{};  // per open array or object: no comma wanted yet
};

}  // namespace octavo
