// Regular expressions over names, with the meaning of Python's re, in which loaders of checkpoints
// match `re:` entries. Time is linear in expression size times text size (no backtracking), because
// both come from files and command lines. The subset:
//   literals   .   [a-z] [^a-z]   ( ) (?: )   |   * + ? {m} {m,} {m,n}   ^ $ \b \B   (?= ) (?! )
//   \d \w \s \D \W \S   \t \n \r \f \v \xHH   \ before anything that is no letter or digit
// over UTF-8; all characters beyond ASCII count as letters, and brackets have none. Backreferences
// and lookbehind are refused.
//   const Pattern pattern("layers\\.(0|1)\\.");
//   if (pattern.is_in(name)) ...
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace octavo {

class Pattern {
 public:
  // Throws Error(invalid_argument) with what is wrong and where: no expression of the subset, or
  // one that has more than kMaxSteps states when its repetitions are written out.
  explicit Pattern(std::string_view expression);

  [[nodiscard]] bool is_in(std::string_view text) const { return search(text, false); }
  // A match at the beginning of the text: Python's re.match.
  [[nodiscard]] bool begins(std::string_view text) const { return search(text, true); }

  static constexpr std::size_t kMaxSteps = 2000;

  struct Characters {
    std::bitset<128> ascii;
    bool others = false;  // all characters beyond ASCII
  };
  enum class Kind : std::uint8_t {
    character,
    characters,
    split,
    jump,
    begin,
    end,
    boundary,
    no_boundary,
    ahead,
    not_ahead,
    found
  };
  struct Step {
    Kind kind = Kind::found;
    std::uint32_t a = 0;  // code point; index of sets_ or of aheads_; split, jump: the next step
    std::uint32_t b = 0;  // split: the other next step
  };

 private:
  [[nodiscard]] bool search(std::string_view text, bool only_at_begin) const;

  std::vector<Step> steps_;  // of all automata, one behind the other
  std::vector<Characters> sets_;
  std::vector<std::uint32_t> aheads_;  // first steps of lookaheads, inner ones first
  std::uint32_t first_ = 0;            // first step of the expression itself
};

}  // namespace octavo
