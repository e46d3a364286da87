// Names are cut at their dots. Those that differ in numbers alone become one row of components, in
// which a number is any number (\d+), or where that would find others one of a list; then rows that
// differ in one component are put together.
#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "octavo/pipeline/plan/name_expression_internal.h"

namespace octavo {
namespace {

constexpr std::size_t kLongest = 400;  // characters
constexpr std::size_t kMaxRows = 256;  // without a rule among them
constexpr std::string_view kAnyNumber = "\\d+";

bool is_number(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

// Quotes and what cannot be seen as \x27, and characters beyond ASCII as any character: a shell, a
// terminal and a page show the expression as it is.
std::string escaped_for_pattern(std::string_view part) {
  std::string out;
  for (const char c : part) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '_' || c == '-';
    if (byte >= 0x80) {
      if (byte >= 0xC0) out += '.';  // the first byte of a character
    } else if (byte < 0x20 || byte == 0x7F || c == '\'' || c == '"' || c == '`') {
      constexpr std::string_view kDigits = "0123456789abcdef";
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      if (!plain) out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace

NameExpressions::NameExpressions(const std::vector<std::string_view>& names) {
  for (const std::string_view name : names) names_[key_of(components_of(name))].push_back(name);
}

NameExpressions::Components NameExpressions::components_of(std::string_view name) {
  Components out;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    out.push_back(name.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string NameExpressions::key_of(const Components& components) {
  std::string key;
  for (const std::string_view part : components) {
    key += is_number(part) ? "#" : part;
    key += '.';
  }
  return key;
}

// Other keys need not be looked at: \d+ finds numbers only, and no component has a dot in it.
std::vector<NameExpressions::Row> NameExpressions::rows_of(
    const std::string& key, const std::set<Components>& wanted) const {
  const std::size_t size = wanted.begin()->size();
  std::vector<std::set<std::string_view>> seen(size);
  for (const Components& name : wanted)
    for (std::size_t i = 0; i < size; ++i) seen[i].insert(name[i]);
  const auto finds_others = [&](bool any_number) {
    const auto known = names_.find(key);
    if (known == names_.end() || wanted.size() == 1) return false;
    return std::any_of(known->second.begin(), known->second.end(), [&](std::string_view other) {
      const Components name = components_of(other);
      for (std::size_t i = 0; i < size; ++i)
        if (!(any_number && seen[i].size() > 1) && !seen[i].contains(name[i])) return false;
      return !wanted.contains(name);
    });
  };
  const auto row_of = [&](bool any_number) {
    Row row(size);
    for (std::size_t i = 0; i < size; ++i)
      if (any_number && seen[i].size() > 1)
        row[i] = {std::string(kAnyNumber)};
      else
        for (const std::string_view part : seen[i]) row[i].insert(escaped_for_pattern(part));
    return row;
  };
  for (const bool any_number : {true, false})
    if (!finds_others(any_number)) return {row_of(any_number)};
  std::vector<Row> rows;
  for (const Components& name : wanted) {
    Row& row = rows.emplace_back();
    for (const std::string_view part : name) row.push_back({escaped_for_pattern(part)});
    if (rows.size() > kMaxRows) break;
  }
  return rows;
}

// Rows that differ in one place become one, which finds what both found and nothing else.
void NameExpressions::merge(std::vector<Row>& rows) {
  for (std::size_t a = 0; a < rows.size(); ++a)
    for (std::size_t b = a + 1; b < rows.size();) {
      std::size_t differ = rows[a].size() == rows[b].size() ? 0 : 2, where = 0;
      for (std::size_t i = 0; differ < 2 && i < rows[a].size(); ++i)
        if (rows[a][i] != rows[b][i]) {
          ++differ;
          where = i;
        }
      if (differ != 1) {
        ++b;
        continue;
      }
      rows[a][where].insert(rows[b][where].begin(), rows[b][where].end());
      rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(b));
      b = a + 1;  // what did not fit before may fit now
    }
}

std::string NameExpressions::expression_of(const Row& row) {
  std::string out = "^";
  for (std::size_t i = 0; i < row.size(); ++i) {
    std::string parts;
    for (const std::string& part : row[i]) parts += (parts.empty() ? "" : "|") + part;
    out += (i > 0 ? "\\." : "") + (row[i].size() == 1 ? parts : "(" + parts + ")");
  }
  return out + "$";
}

std::string NameExpressions::of(const std::set<std::string_view>& wanted) const {
  std::map<std::string, std::set<Components>> alike;
  for (const std::string_view name : wanted) {
    Components components = components_of(name);
    alike[key_of(components)].insert(std::move(components));
  }
  std::vector<Row> rows;
  for (const auto& [key, names] : alike) {
    for (Row& row : rows_of(key, names)) rows.push_back(std::move(row));
    if (rows.size() > kMaxRows) return "";
  }
  merge(rows);
  std::string out;
  for (const Row& row : rows) {
    out += (out.empty() ? "" : "|") + expression_of(row);
    if (out.size() > kLongest) return "";
  }
  return out;
}

}  // namespace octavo
