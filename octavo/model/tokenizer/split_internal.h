// Text cut at the matches of a pattern, and what becomes of the matches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/model/tokenizer/expression_internal.h"
#include "octavo/model/tokenizer/part_internal.h"

namespace octavo::tokenizer {

// A regular expression, or text that is looked for as it is.
class Pattern {
 public:
  // {"Regex": ...} or {"String": ...}.
  explicit Pattern(const Part& part);
  static Pattern of_text(std::string_view text);
  explicit Pattern(Expression expression) : expression_(std::move(expression)) {}

  // Calls match(begin, end) for every match of the text, in order, with the package's rule for
  // empty ones: none directly behind a match.
  template <typename OnMatch>
  void each(std::string_view text, MatchMemory& memory, const OnMatch& on_match) const {
    std::string storage;
    const std::string_view subject = subject_of(text, storage);
    bool any = false;
    std::size_t at = 0, last = 0;
    Match match;
    while (at <= text.size() && search(subject, at, memory, match)) {
      if (match.begin == match.end && any && match.end == last) {
        at += at < text.size() ? bytes_at(text, at) : 1;
        continue;
      }
      on_match(match.begin, match.end);
      any = true;
      at = last = match.end;
    }
  }

 private:
  Pattern() = default;
  [[nodiscard]] std::string_view subject_of(std::string_view text, std::string& storage) const;
  [[nodiscard]] bool search(std::string_view subject, std::size_t from, MatchMemory& memory,
                            Match& match) const;
  static std::size_t bytes_at(std::string_view text, std::size_t at);

  std::optional<Expression> expression_;
  std::string text_;  // where there is no expression
};

// A part of the text, and whether the pattern matched it.
struct Cut {
  std::size_t begin, end;
  bool match;
};

enum class SplitBehavior : std::uint8_t {
  removed,
  isolated,
  merged_with_previous,
  merged_with_next,
  contiguous,
};
[[nodiscard]] SplitBehavior parse_split_behavior(const Part& part);

// Parts that cover the text become those that the behavior makes of them; removed ones are gone.
[[nodiscard]] std::vector<Cut> apply_behavior(std::vector<Cut> cuts, SplitBehavior behavior);

}  // namespace octavo::tokenizer
