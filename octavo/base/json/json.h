// A JSON document as a value (DOM): config.json, indexes, reports. Keys keep their order and
// numbers keep their digits, so unchanged content round-trips byte for byte. (safetensors headers
// are read without a DOM.)
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
  // All of these are implicit on purpose. No pointer is a bool, and no integer a double.
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

  // Null where this is not an object or the key is absent, so lookups can be chained.
  [[nodiscard]] const Json& operator[](std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const;
  // The value, or `otherwise` where this has another kind or the number does not fit the type.
  [[nodiscard]] std::int64_t integer_or(std::int64_t otherwise) const;
  [[nodiscard]] double number_or(double otherwise) const;
  [[nodiscard]] bool boolean_or(bool otherwise) const;
  [[nodiscard]] std::string_view string_or(std::string_view otherwise) const;
  [[nodiscard]] const std::vector<Json>& elements() const {
    return elements_;
  }  // empty if no array
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }

  // Replaces in place, or appends; makes null an object.
  Json& set(std::string_view key, Json value);
  void remove(std::string_view key);
  Json& push(Json value);  // makes null an array

  // The format of Python's json.dump(indent=2): two spaces per level, no trailing spaces; indent 0
  // is one line. Non-ASCII text is not escaped.
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
// Memory is at most about a hundred times the size of the text; nesting depth is at most 127.
[[nodiscard]] Json parse_json(std::string_view text, std::string_view file);

}  // namespace octavo
