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

const Json& null_json() {
  static const Json null;
  return null;
}

// The whole of the text or nothing.
template <typename Number>
Number number_of(std::string_view digits, Number otherwise) {
  Number value{};
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc{} && stop == digits.data() + digits.size() ? value : otherwise;
}

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
    Json value;
    switch (reader_.peek()) {
      case '{':
        value.kind_ = Json::Kind::object;
        reader_.begin_object();
        for (std::string key; reader_.next_key(key);)
          value.members_.emplace_back(std::move(key), next());
        check_keys(value.members_);
        return value;
      case '[':
        value.kind_ = Json::Kind::array;
        reader_.begin_array();
        while (reader_.next_element()) value.elements_.push_back(next());
        return value;
      case '"':
        return reader_.string();
      case 'n':
        if (reader_.null()) return value;
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
    value.kind_ = Json::Kind::number;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (!reader_.word(word)) continue;
      value.text_ = word;
      return value;
    }
    value.text_ = reader_.number();
    return value;
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

Json::Json(double value) {
  if (!std::isfinite(value)) return;
  kind_ = Kind::number;
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
  text_.assign(digits.data(), end);
}

Json Json::array(std::vector<Json> elements) {
  Json out;
  out.kind_ = Kind::array;
  out.elements_ = std::move(elements);
  return out;
}

Json Json::object(std::vector<Member> members) {
  Json out;
  out.kind_ = Kind::object;
  out.members_ = std::move(members);
  return out;
}

const Json& Json::operator[](std::string_view key) const {
  for (const auto& [name, value] : members_)
    if (name == key) return value;
  return null_json();
}

bool Json::has(std::string_view key) const {
  return std::any_of(members_.begin(), members_.end(),
                     [key](const Member& member) { return member.first == key; });
}

std::int64_t Json::integer_or(std::int64_t otherwise) const {
  return kind_ == Kind::number ? number_of(text_, otherwise) : otherwise;
}

double Json::number_or(double otherwise) const {
  // from_chars takes "nan" and "infinity" in any case, so Python's words too.
  return kind_ == Kind::number ? number_of(text_, otherwise) : otherwise;
}

bool Json::boolean_or(bool otherwise) const {
  return kind_ == Kind::boolean ? boolean_ : otherwise;
}

std::string_view Json::string_or(std::string_view otherwise) const {
  return kind_ == Kind::string ? std::string_view(text_) : otherwise;
}

Json& Json::set(std::string_view key, Json value) {
  if (kind_ == Kind::null) kind_ = Kind::object;
  check(kind_ == Kind::object, ErrorCode::invalid_argument, kOp, "cannot set '", shown(key),
        "' of what is no object");
  for (auto& [name, old] : members_)
    if (name == key) return old = std::move(value);
  return members_.emplace_back(std::string(key), std::move(value)).second;
}

void Json::remove(std::string_view key) {
  std::erase_if(members_, [key](const Member& member) { return member.first == key; });
}

Json& Json::push(Json value) {
  if (kind_ == Kind::null) kind_ = Kind::array;
  check(kind_ == Kind::array, ErrorCode::invalid_argument, kOp,
        "cannot push a value to what is no array");
  return elements_.emplace_back(std::move(value));
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
  switch (kind_) {
    case Kind::null:
      out += "null";
      break;
    case Kind::boolean:
      out += boolean_ ? "true" : "false";
      break;
    case Kind::number:
      out += text_;
      break;
    case Kind::string:
      append_json_string(out, text_);
      break;
    case Kind::array:
      list('[', ']', elements_, [&](const Json& value) { value.dump_to(out, indent, level + 1); });
      break;
    case Kind::object:
      list('{', '}', members_, [&](const Member& member) {
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
