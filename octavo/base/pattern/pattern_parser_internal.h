// Syntax tree of a regular expression, before compilation to automaton steps.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "octavo/base/pattern/pattern.h"

namespace octavo {

struct PatternNode {
  enum class Kind : std::uint8_t { nothing, bytes, assertion, sequence, either, repeat };
  Kind kind = Kind::nothing;
  Pattern::Bytes bytes{};                          // bytes
  Pattern::Kind assertion = Pattern::Kind::begin;  // assertion
  std::uint32_t least = 0, most = 0;               // repeat
  std::vector<PatternNode> parts{};                // sequence, either; one for repeat
};
inline constexpr std::uint32_t kPatternNoLimit = 0xFFFFFFFF;

// Throws Error(invalid_argument).
[[nodiscard]] PatternNode parse_pattern(std::string_view expression);

}  // namespace octavo
