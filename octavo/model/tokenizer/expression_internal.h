// Regular expressions of tokenizer.json, which are written for Oniguruma, matched by PCRE2: with
// look-ahead, Unicode classes and a limit on the work of a match.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace octavo::tokenizer {

// Oniguruma's syntax as PCRE2's with the same meaning. Throws Error(unsupported) that names what it
// does not know, Error(invalid_argument) for what is no expression.
[[nodiscard]] std::string pcre2_syntax(std::string_view oniguruma);

// The library that octavo was built without, and that expressions need; else "".
[[nodiscard]] std::string_view missing_for_expressions();

struct Match {
  std::size_t begin = 0, end = 0;
};

// Memory of matching: one at a time may use it.
class MatchMemory {
 public:
  MatchMemory();
  ~MatchMemory();
  MatchMemory(MatchMemory&&) noexcept;
  MatchMemory& operator=(MatchMemory&&) noexcept;

 private:
  friend class Expression;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

class Expression {
 public:
  explicit Expression(std::string_view oniguruma);
  static Expression from_pcre2(std::string_view pattern);
  ~Expression();
  Expression(Expression&&) noexcept;
  Expression& operator=(Expression&&) noexcept;

  // The first match at `from` or after it. The text is valid UTF-8 with stand-ins for younger
  // characters (with_stand_ins). Threads may share an expression. Throws Error(unsupported) where a
  // match takes more steps or memory than any tokenizer needs.
  [[nodiscard]] bool search(std::string_view text, std::size_t from, MatchMemory& memory,
                            Match& match) const;

 private:
  struct Code;
  Expression(std::string_view pattern, std::string shown_as);
  std::shared_ptr<const Code> code_;
};

}  // namespace octavo::tokenizer
