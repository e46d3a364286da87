// A JSON document as a value that can be read, changed and written again: config.json, indexes,
// reports. Keys keep their order and numbers keep their digits, so that what nobody changed comes
// out as it went in. (safetensors headers are read without building one.)
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octavo {

class Json {
 public:
  enum class Kind : std::uint8_t { null, boolean, number, string, array, object };
  using Member = std::pair<std::string, Json>;

  Json() = default;  // null
  // Meant to be implicit, all of them. No pointer is a bool, and no integer a double.
  template <std::same_as<bool> Bool>
  Json(Bool value) : kind_(Kind::boolean), boolean_(value) {}  // NOLINT
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) Json(Integer value)
      : kind_(Kind::number), text_(std::to_string(value)) {}  // NOLINT
  Json(double value);  // NOLINT: the shortest digits that read back; null if not finite
  Json(std::string value) : kind_(Kind::string), text_(std::move(value)) {}  // NOLINT
  Json(std::string_view value) : Json(std::string(value)) {}                 // NOLINT
  Json(const char* value) : Json(std::string(value)) {}                      // NOLINT
  [[nodiscard]] static Json array(std::vector<Json> elements = {});
  [[nodiscard]] static Json object(std::vector<Member> members = {});

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is_null() const { return kind_ == Kind::null; }
  [[nodiscard]] bool is_object() const { return kind_ == Kind::object; }
  [[nodiscard]] bool is_array() const { return kind_ == Kind::array; }
  [[nodiscard]] bool is_string() const { return kind_ == Kind::string; }
  [[nodiscard]] bool is_number() const { return kind_ == Kind::number; }

  // Null where this is no object or has no such key: chains of unknown depth end in null.
  [[nodiscard]] const Json& operator[](std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const;
  // What is asked for, or `otherwise` where this is something else (a number that does not fit
  // too).
  [[nodiscard]] std::int64_t integer_or(std::int64_t otherwise) const;
  [[nodiscard]] double number_or(double otherwise) const;
  [[nodiscard]] bool boolean_or(bool otherwise) const;
  [[nodiscard]] std::string_view string_or(std::string_view otherwise) const;
  [[nodiscard]] const std::vector<Json>& elements() const {
    return elements_;
  }  // empty if no array
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }

  Json& set(std::string_view key, Json value);  // in its place, or at the end; makes null an object
  void remove(std::string_view key);
  Json& push(Json value);  // makes null an array

  // Two spaces a level and no space at line ends, as Python's json.dump(indent=2) writes it; with
  // indent 0 on one line. Everything beyond ASCII as it is.
  [[nodiscard]] std::string dump(int indent = 2) const;
  bool operator==(const Json&) const = default;

 private:
  friend class JsonBuilder;
  void dump_to(std::string& out, int indent, int level) const;

  Kind kind_ = Kind::null;
  bool boolean_ = false;
  std::string text_;  // of a string; the digits of a number
  std::vector<Json> elements_;
  std::vector<Member> members_;
};

// RFC 8259, and the NaN, Infinity and -Infinity that Python writes (numbers, as they stand); a key
// that comes twice is an error. Throws Error(invalid_argument) that names `file` and the byte.
// Memory is at most some hundred times the text's, depth at most 127.
[[nodiscard]] Json parse_json(std::string_view text, std::string_view file);

}  // namespace octavo
