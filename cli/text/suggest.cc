#include "cli/text/suggest.h"

#include <algorithm>
#include <cctype>

namespace octavo::cli {
namespace {

// Longer than any name: such input is no typing error, and the table below stays small.
constexpr std::size_t kLongest = 48;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Optimal string alignment distance: a swap of neighbours, the commonest slip, is one edit.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
        continue;
      }
      const std::size_t replace = table[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
      }
    }
  }
  return table[a.size()][b.size()];
}

}  // namespace

std::string nearest(std::string_view typed, const std::vector<std::string>& names) {
  if (typed.empty() || typed.size() > kLongest) return "";
  const std::string wanted = lower(typed);
  std::string best;
  std::size_t fewest = std::max<std::size_t>(1, typed.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t distance = edits(wanted, lower(name));
    if (distance < fewest) {
      fewest = distance;
      best = name;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view typed, const std::vector<std::string>& names) {
  // What was typed is the end of several names: `fp4` of mxfp4 and nvfp4, which are no typing error
  // away from each other.
  constexpr std::size_t kShortest = 3;
  std::string ends;
  for (const std::string& name : names)
    if (typed.size() >= kShortest && lower(name).ends_with(lower(typed)))
      ends += (ends.empty() ? "'" : " or '") + name + "'";
  if (!ends.empty()) return " Did you mean " + ends + "?";
  const std::string name = nearest(typed, names);
  return name.empty() ? "" : " Did you mean '" + name + "'?";
}

std::string shown(std::string_view typed) {
  constexpr std::size_t kShown = 60;
  std::string out;
  for (const char c : typed.substr(0, kShown)) out += c >= ' ' && c <= '~' ? c : '?';
  return typed.size() > kShown ? out + "..." : out;
}

}  // namespace octavo::cli
