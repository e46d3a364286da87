// Regular expressions over names, matched in time linear in expression size times text size (no
// backtracking), because both come from files and command lines. The subset:
//   literals   .   [a-z] [^a-z]   ( ) (?: )   |   * + ? {m} {m,} {m,n}   ^ $ \b \B
//   \d \w \s \D \W \S   \t \n \r \f \v \xHH   \ before anything that is no letter or digit
// with the meaning of ECMAScript and Python, over bytes. Backreferences and look-around are
// refused: they have no such bound.
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
  // one that has more than kMostSteps states when its repetitions are written out.
  explicit Pattern(std::string_view expression);

  [[nodiscard]] bool is_in(std::string_view text) const { return search(text, false); }
  // A match at the beginning of the text: Python's re.match.
  [[nodiscard]] bool begins(std::string_view text) const { return search(text, true); }

  static constexpr std::size_t kMostSteps = 2000;

  using Bytes = std::bitset<256>;
  enum class Kind : std::uint8_t { bytes, split, jump, begin, end, boundary, no_boundary, found };
  struct Step {
    Kind kind = Kind::found;
    std::uint32_t a = 0;  // bytes: of sets_; split, jump: the next step
    std::uint32_t b = 0;  // split: the other next step
  };

 private:
  [[nodiscard]] bool search(std::string_view text, bool only_at_begin) const;

  std::vector<Step> steps_;
  std::vector<Bytes> sets_;
};

}  // namespace octavo
