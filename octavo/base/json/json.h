// A JSON document as a value (DOM): config.json, indexes, reports. Keys keep their order and
// numbers keep their digits, so unchanged content round-trips byte for byte. (safetensors headers
// are read without a DOM.)
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace octavo {

class Json {
 public:
  enum class Kind : std::uint8_t { null, boolean, number, string, array, object };
  using Member = std::pair<std::string, Json>;

  Json() = default;  // null
  // Defined in json.cc: their code for all kinds is large.
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();
  // All of these are implicit on purpose. No pointer is a bool, and no integer a double.
  template <std::same_as<bool> Bool>
  Json(Bool value) : value_(value) {}  // NOLINT
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) Json(Integer value)
      : value_(Number{std::to_string(value)}) {}  // NOLINT
  Json(double value);  // NOLINT: the shortest digits that read back; null if not finite
  Json(std::string value) : value_(std::move(value)) {}       // NOLINT
  Json(std::string_view value) : Json(std::string(value)) {}  // NOLINT
  Json(const char* value) : Json(std::string(value)) {}       // NOLINT
  [[nodiscard]] static Json array(std::vector<Json> elements = {});
  [[nodiscard]] static Json object(std::vector<Member> members = {});

  [[nodiscard]] Kind kind() const { return static_cast<Kind>(value_.index()); }
  [[nodiscard]] bool is_null() const { return kind() == Kind::null; }
  [[nodiscard]] bool is_object() const { return kind() == Kind::object; }
  [[nodiscard]] bool is_array() const { return kind() == Kind::array; }
  [[nodiscard]] bool is_string() const { return kind() == Kind::string; }
  [[nodiscard]] bool is_number() const { return kind() == Kind::number; }

  // Null where this is not an object or the key is absent, so lookups can be chained.
  [[nodiscard]] const Json& operator[](std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const;
  // The value, or `otherwise` where this has another kind or the number does not fit the type.
  [[nodiscard]] std::int64_t integer_or(std::int64_t otherwise) const;
  [[nodiscard]] double number_or(double otherwise) const;
  [[nodiscard]] bool boolean_or(bool otherwise) const;
  [[nodiscard]] std::string_view string_or(std::string_view otherwise) const;
  [[nodiscard]] const std::vector<Json>& elements() const;   // empty if no array
  [[nodiscard]] const std::vector<Member>& members() const;  // empty if no object

  // Replaces in place, or appends; makes null an object.
  Json& set(std::string_view key, Json value);
  void remove(std::string_view key);
  Json& push(Json value);  // makes null an array

  // The format of Python's json.dump(indent=2): two spaces per level, no trailing spaces; indent 0
  // is one line. Non-ASCII text is not escaped.
  [[nodiscard]] std::string dump(int indent = 2) const;
  bool operator==(const Json&) const;

 private:
  friend class JsonBuilder;
  void dump_to(std::string& out, int indent, int level) const;

  struct Number {
    std::string digits;  // as they stand in the text
    bool operator==(const Number&) const = default;
  };
  using Elements = std::vector<Json>;
  using Members = std::vector<Member>;

  // One of these at a time: a hostile text of small values decides how many there are. In the order
  // of Kind.
  std::variant<std::monostate, bool, Number, std::string, Elements, Members> value_;
};

// RFC 8259, and the NaN, Infinity and -Infinity that Python writes (numbers, as they stand); a key
// that comes twice is an error. Throws Error(invalid_argument) that names `file` and the byte.
// Memory is at most about sixty times the size of the text; nesting depth is at most 127.
[[nodiscard]] Json parse_json(std::string_view text, std::string_view file);

}  // namespace octavo
