// What a user says of tensors by name: include, exclude, a recipe for some.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// Names longer than this are matched by nothing: they come from files, and the standard library's
// matcher takes stack for every character.
inline constexpr std::size_t kMostMatchedBytes = 2048;

class NamePattern {
 public:
  // Throws Error(invalid_argument) when it is no regular expression.
  explicit NamePattern(const std::string& expression);
  [[nodiscard]] bool matches(std::string_view name) const;

 private:
  struct Compiled;  // <regex> is in one file alone
  std::shared_ptr<const Compiled> compiled_;
};

class NamePatterns {
 public:
  explicit NamePatterns(const std::vector<std::string>& expressions);
  [[nodiscard]] bool empty() const { return patterns_.empty(); }
  [[nodiscard]] bool match(std::string_view name) const;

 private:
  std::vector<NamePattern> patterns_;
};

}  // namespace octavo
