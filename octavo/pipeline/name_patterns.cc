#include "octavo/pipeline/name_patterns_internal.h"

// GCC 12 with sanitizers takes a union in <regex> for uninitialised.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <algorithm>
#include <regex>

#include "octavo/base/error.h"

namespace octavo {

struct NamePattern::Compiled {
  std::regex regex;
};

NamePattern::NamePattern(const std::string& expression) {
  try {
    compiled_ = std::make_shared<const Compiled>(
        Compiled{std::regex(expression, std::regex::ECMAScript | std::regex::nosubs)});
  } catch (const std::regex_error& error) {
    fail(ErrorCode::invalid_argument, "quantize", "'", shown(expression),
         "' is no regular expression: ", error.what());
  }
}

bool NamePattern::matches(std::string_view name) const {
  return name.size() <= kMostMatchedBytes &&
         std::regex_search(name.begin(), name.end(), compiled_->regex);
}

NamePatterns::NamePatterns(const std::vector<std::string>& expressions) {
  for (const std::string& expression : expressions) patterns_.emplace_back(expression);
}

bool NamePatterns::match(std::string_view name) const {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const NamePattern& pattern) { return pattern.matches(name); });
}

}  // namespace octavo
