// The user's regular expressions on tensor names: include, exclude, recipe_for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/pattern/pattern.h"

namespace octavo {

// Longer names match nothing: names are untrusted, and matching time grows with their length.
inline constexpr std::size_t kMaxMatchedBytes = 2048;

class NamePattern {
 public:
  // `option` is the option's name for messages: "include". Throws Error(invalid_argument) for an
  // expression that octavo does not support.
  NamePattern(std::string_view option, const std::string& expression);
  [[nodiscard]] bool matches(std::string_view name) const {
    return name.size() <= kMaxMatchedBytes && pattern_.is_in(name);
  }
  [[nodiscard]] const std::string& expression() const { return expression_; }

 private:
  std::string expression_;
  Pattern pattern_;
};

class NamePatterns {
 public:
  NamePatterns(std::string_view option, const std::vector<std::string>& expressions);
  [[nodiscard]] bool empty() const { return patterns_.empty(); }
  [[nodiscard]] bool match(std::string_view name) const;
  [[nodiscard]] const std::vector<NamePattern>& all() const { return patterns_; }

 private:
  std::vector<NamePattern> patterns_;
};

}  // namespace octavo
