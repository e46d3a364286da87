// Sets of characters that an expression names: \p{...}, \s, \w, [:punct:] as items of a PCRE2
// class.
#pragma once

#include <string>
#include <string_view>

namespace octavo::tokenizer {

struct CharacterSet {
  std::string items;  // what stands between brackets
  std::string
      complement;  // items of all other characters; "" where there is no short way to say it
};

[[nodiscard]] const CharacterSet& white_space_set();
[[nodiscard]] const CharacterSet& word_set();
[[nodiscard]] const CharacterSet& hex_digit_set();

// \p{name}: a general category, script or binary property, by its short or long name. In an
// expression without regard to case, the categories of case mean other things to the two engines
// and are refused.
[[nodiscard]] CharacterSet property_set(std::string_view name, bool caseless);

}  // namespace octavo::tokenizer
