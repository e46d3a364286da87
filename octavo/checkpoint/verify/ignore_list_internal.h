// The ignore list of unquantized modules (`ignore`, `modules_to_not_convert`, `exclude_modules`),
// matched as each loader matches it: full names, globs, regular expressions, prefixes. The list is
// untrusted, and matching it takes bounded time.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/json/json.h"
#include "octavo/base/pattern/pattern.h"
#include "octavo/checkpoint/dialect/dialect.h"
#include "octavo/checkpoint/verify/verify.h"

namespace octavo {

// A regular expression from a file, matched at the beginning of names. Most entries are full names,
// in which only the dots are metacharacters.
class IgnoreExpression {
 public:
  explicit IgnoreExpression(std::string_view text);
  [[nodiscard]] bool is_read() const { return plain_ || pattern_.has_value(); }
  // Unbalanced brackets, or a repetition of nothing: invalid in every regex engine.
  [[nodiscard]] bool is_broken() const;
  [[nodiscard]] bool begins(std::string_view name) const;

 private:
  std::string_view text_;
  bool plain_ = false;
  std::optional<Pattern> pattern_;
};

class IgnoreList {
 public:
  // `list` must outlive this object. Anything but an array of strings ignores nothing.
  IgnoreList(Dialect dialect, const Json& list);

  // The first expression that this loader would use and octavo cannot parse: what it covers is
  // unknown. Empty where there is none.
  [[nodiscard]] std::string_view unread(Loader loader) const;
  // The first invalid expression, which makes the loader fail.
  [[nodiscard]] std::string_view broken(Loader loader) const;
  [[nodiscard]] bool covers(Loader loader, const std::string& module) const;

 private:
  struct Entry {
    std::string_view text;
    std::optional<IgnoreExpression> expression{};  // where a loader treats it as one
  };
  void add(std::string_view text);
  template <typename Asked>
  [[nodiscard]] std::string_view first(Loader loader, Asked asked) const;
  [[nodiscard]] bool covers(Loader loader, const Entry& entry, const std::string& module) const;

  Dialect dialect_;
  std::set<std::string_view> exact_;
  std::vector<Entry> entries_;
};

}  // namespace octavo
