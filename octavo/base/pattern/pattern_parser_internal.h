// Syntax tree of a regular expression, before compilation to automaton steps.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "octavo/base/pattern/pattern.h"

namespace octavo {

struct PatternNode {
  enum class Kind : std::uint8_t { character, characters, assertion, sequence, either, repeat };
  Kind kind = Kind::sequence;
  std::uint32_t character = 0;                     // character: its code point
  Pattern::Characters characters{};                // characters
  Pattern::Kind assertion = Pattern::Kind::begin;  // assertion
  std::uint32_t ahead = 0;                         // of a lookahead: which
  std::uint32_t least = 0, most = 0;               // repeat
  std::vector<PatternNode> parts{};                // sequence, either; one for repeat
};
inline constexpr std::uint32_t kPatternNoLimit = 0xFFFFFFFF;

struct PatternTree {
  std::vector<PatternNode> aheads{};  // insides of lookaheads; inner ones first
  PatternNode whole{};
};

// Throws Error(invalid_argument).
[[nodiscard]] PatternTree parse_pattern(std::string_view expression);

}  // namespace octavo
