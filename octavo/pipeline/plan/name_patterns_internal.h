// What a user says of tensors by name: include, exclude, a recipe for some.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/pattern/pattern.h"

namespace octavo {

// Names longer than this are matched by nothing: they come from files, and time grows with them.
inline constexpr std::size_t kMaxMatchedBytes = 2048;

class NamePattern {
 public:
  // `option` is its name, for messages: "include". Throws Error(invalid_argument)
  // when it is no expression that octavo takes.
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
