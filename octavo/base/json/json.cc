#include "octavo/base/json/json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "octavo/base/error.h"
#include "octavo/base/json/json_reader_internal.h"
#include "octavo/base/json/json_text_internal.h"

namespace octavo {
namespace {

constexpr std::string_view kOp = "json";

}  // namespace

// From the pull parser to a tree; its depth is bounded by the parser's.
class JsonBuilder {
 public:
  explicit JsonBuilder(std::string_view text) : reader_(text) {}

  Json whole() {
    Json value = next();
    reader_.end();
    return value;
  }

 private:
  Json next() {
    Json out;
    switch (reader_.peek()) {
      case '{': {
        Json::Members& members = out.value_.emplace<Json::Members>();
        reader_.begin_object();
        for (std::string key; reader_.next_key(key);) members.emplace_back(std::move(key), next());
        check_keys(members);
        return out;
      }
      case '[': {
        Json::Elements& elements = out.value_.emplace<Json::Elements>();
        reader_.begin_array();
        while (reader_.next_element()) elements.push_back(next());
        return out;
      }
      case '"':
        return reader_.string();
      case 'n':
        if (reader_.null()) return out;
        break;
      case 't':
        if (reader_.word("true")) return true;
        break;
      case 'f':
        if (reader_.word("false")) return false;
        break;
      default:
        break;
    }
    std::string& digits = out.value_.emplace<Json::Number>().digits;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (!reader_.word(word)) continue;
      digits = word;
      return out;
    }
    const char first = reader_.peek();
    if (first != '-' && (first < '0' || first > '9')) reader_.fail_at_next("a value");
    digits = reader_.number();
    return out;
  }

  void check_keys(const std::vector<Json::Member>& members) const {
    std::vector<std::string_view> keys;
    keys.reserve(members.size());
    for (const auto& [key, value] : members) keys.push_back(key);
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) reader_.fail(text("got key '", shown(*twice), "' twice"));
  }

  JsonReader reader_;
};

Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;
bool Json::operator==(const Json&) const = default;

Json::Json(double value) {
  if (!std::isfinite(value)) return;
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  value_ = Number{std::string(digits.data(), end)};
}

Json Json::array(std::vector<Json> elements) {
  Json out;
  out.value_ = std::move(elements);
  return out;
}

Json Json::object(std::vector<Member> members) {
  Json out;
  out.value_ = std::move(members);
  return out;
}

const std::vector<Json>& Json::elements() const {
  static const Elements kNone;
  const auto* const elements = std::get_if<Elements>(&value_);
  return elements != nullptr ? *elements : kNone;
}

const std::vector<Json::Member>& Json::members() const {
  static const Members kNone;
  const auto* const members = std::get_if<Members>(&value_);
  return members != nullptr ? *members : kNone;
}

const Json& Json::operator[](std::string_view key) const {
  static const Json kNull;
  for (const auto& [name, value] : members())
    if (name == key) return value;
  return kNull;
}

bool Json::has(std::string_view key) const {
  return std::any_of(members().begin(), members().end(),
                     [key](const Member& member) { return member.first == key; });
}

std::int64_t Json::integer_or(std::int64_t otherwise) const {
  const auto* const number = std::get_if<Number>(&value_);
  if (number == nullptr) return otherwise;
  const char* const end = number->digits.data() + number->digits.size();
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(number->digits.data(), end, value);
  return error == std::errc{} && stop == end ? value : otherwise;  // all digits or nothing
}

double Json::number_or(double otherwise) const {
  // from_chars takes "nan" and "infinity" in any case, so Python's words too.
  const auto* const number = std::get_if<Number>(&value_);
  if (number == nullptr) return otherwise;
  const std::string& digits = number->digits;
  double value = otherwise;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  // The parser refuses what is too large, so that this is too small.
  if (error == std::errc::result_out_of_range) return digits.front() == '-' ? -0.0 : 0.0;
  return value;
}

bool Json::boolean_or(bool otherwise) const {
  const bool* const boolean = std::get_if<bool>(&value_);
  return boolean != nullptr ? *boolean : otherwise;
}

std::string_view Json::string_or(std::string_view otherwise) const {
  const auto* const string = std::get_if<std::string>(&value_);
  return string != nullptr ? std::string_view(*string) : otherwise;
}

Json& Json::set(std::string_view key, Json value) {
  if (is_null()) value_.emplace<Members>();
  auto* const members = std::get_if<Members>(&value_);
  check(members != nullptr, ErrorCode::invalid_argument, kOp, "cannot set '", shown(key),
        "' of what is no object");
  for (auto& [name, old] : *members)
    if (name == key) return old = std::move(value);
  return members->emplace_back(std::string(key), std::move(value)).second;
}

void Json::remove(std::string_view key) {
  if (auto* const members = std::get_if<Members>(&value_))
    std::erase_if(*members, [key](const Member& member) { return member.first == key; });
}

Json& Json::push(Json value) {
  if (is_null()) value_.emplace<Elements>();
  auto* const elements = std::get_if<Elements>(&value_);
  check(elements != nullptr, ErrorCode::invalid_argument, kOp,
        "cannot push a value to what is no array");
  return elements->emplace_back(std::move(value));
}

std::string Json::dump(int indent) const {
  std::string out;
  dump_to(out, indent, 0);
  return out;
}

void Json::dump_to(std::string& out, int indent, int level) const {
  const auto new_line = [&](int at) {
    if (indent > 0) out.append("\n").append(static_cast<std::size_t>(indent * at), ' ');
  };
  const auto list = [&](char open, char close, const auto& items, const auto& put) {
    out += open;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += indent > 0 ? "," : ", ";
      new_line(level + 1);
      put(items[i]);
    }
    if (!items.empty()) new_line(level);
    out += close;
  };
  switch (kind()) {
    case Kind::null:
      out += "null";
      break;
    case Kind::boolean:
      out += boolean_or(false) ? "true" : "false";
      break;
    case Kind::number:
      out += std::get<Number>(value_).digits;
      break;
    case Kind::string:
      append_json_string(out, string_or(""));
      break;
    case Kind::array:
      list('[', ']', elements(), [&](const Json& value) { value.dump_to(out, indent, level + 1); });
      break;
    case Kind::object:
      list('{', '}', members(), [&](const Member& member) {
        append_json_string(out, member.first);
        out += ": ";
        member.second.dump_to(out, indent, level + 1);
      });
      break;
  }
}

Json parse_json(std::string_view text_of_file, std::string_view file) {
  const std::size_t bad = find_bad_utf8(text_of_file);
  check(bad == std::string_view::npos, ErrorCode::invalid_argument, kOp, "'", shown(file, 200),
        "' is not UTF-8 at byte ", bad, ", and JSON must be");
  try {
    return JsonBuilder(text_of_file).whole();
  } catch (const JsonProblem& problem) {
    fail(ErrorCode::invalid_argument, kOp, "'", shown(file, 200), "' at byte ", problem.at, ": ",
         problem.what);
  }
}

}  // namespace octavo
