// A list of modules that are not quantized, as each loader reads it: full names, globs,
// expressions, beginnings. It comes from a file, and nothing in it may take forever.
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

// An expression of a file, at the beginning of names. Full names are most of them, and only their
// dots are more than letters.
class SkipExpression {
 public:
  explicit SkipExpression(std::string_view text);
  [[nodiscard]] bool is_read() const { return plain_ || pattern_.has_value(); }
  // Brackets that do not close, or a repetition of nothing: no expression to anybody.
  [[nodiscard]] bool is_broken() const;
  [[nodiscard]] bool begins(std::string_view name) const;

 private:
  std::string_view text_;
  bool plain_ = false;
  std::optional<Pattern> pattern_;
};

class SkipList {
 public:
  // Of the list's texts; it must outlive this. Anything but an array of texts skips nothing.
  SkipList(Dialect dialect, const Json& list);

  // The first expression that octavo cannot read, in the eyes of a loader: what it covers is not
  // known. Empty where there is none.
  [[nodiscard]] std::string_view unread(Loader loader) const;
  // The first that is none, which stops the loader.
  [[nodiscard]] std::string_view broken(Loader loader) const;
  [[nodiscard]] bool covers(Loader loader, const std::string& module) const;

 private:
  struct Entry {
    std::string_view text;
    std::optional<SkipExpression> expression{};  // where a loader takes it for one
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
