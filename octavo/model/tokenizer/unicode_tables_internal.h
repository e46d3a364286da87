// Where the Unicode tables of PCRE2 and utf8proc differ from those of the `tokenizers` package,
// which has three ages of Unicode in it. tests/conformance/generate_tokenizer_tables.py finds them.
#pragma once

#include <cstdint>
#include <span>

namespace octavo::tokenizer {

struct CharacterRange {
  std::uint32_t first, last;
};

// Characters [first, last] that have another category, or are another kind of Alphabetic, in
// Unicode 16 than in the 14 of Debian's PCRE2; and one with theirs in both, as long in UTF-8.
// Sorted.
struct StandIn {
  std::uint32_t first, last, stand_in;
};
[[nodiscard]] std::span<const StandIn> stand_ins();

// Normal forms leave these alone: the package has those of Unicode 9. Sorted.
[[nodiscard]] std::span<const CharacterRange> not_normalized_characters();

// Numbers of Unicode 17. Sorted.
[[nodiscard]] std::span<const CharacterRange> youngest_numbers();

}  // namespace octavo::tokenizer
