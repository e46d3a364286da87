// The caller's regular expressions, with the option's name in messages.
#include <algorithm>

#include "octavo/base/error.h"
#include "octavo/pipeline/plan/name_patterns_internal.h"

namespace octavo {
namespace {

Pattern compiled(std::string_view option, const std::string& expression) {
  try {
    return Pattern(expression);
  } catch (const Error& error) {
    fail(ErrorCode::invalid_argument, "quantize", "option ", option, ": ", reason_of(error));
  }
}

}  // namespace

NamePattern::NamePattern(std::string_view option, const std::string& expression)
    : expression_(expression), pattern_(compiled(option, expression)) {}

NamePatterns::NamePatterns(std::string_view option, const std::vector<std::string>& expressions) {
  for (const std::string& expression : expressions) patterns_.emplace_back(option, expression);
}

bool NamePatterns::match(std::string_view name) const {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const NamePattern& pattern) { return pattern.matches(name); });
}

}  // namespace octavo
