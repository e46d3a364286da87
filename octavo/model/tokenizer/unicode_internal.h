// Characters of a text: code points of UTF-8, white space; and stand-ins for those that PCRE2
// and utf8proc know less of than the `tokenizers` package.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace octavo::tokenizer {

// Bytes of the character that begins with this byte, in valid UTF-8.
[[nodiscard]] inline std::size_t character_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

// The code point at `at` of valid UTF-8, which moves behind it.
[[nodiscard]] inline std::uint32_t next_point(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const std::size_t bytes = character_bytes(text[at]);
  std::uint32_t point = byte(0);
  if (bytes == 2) point = (point & 0x1F) << 6 | (byte(1) & 0x3FU);
  if (bytes == 3) point = (point & 0x0F) << 12 | (byte(1) & 0x3FU) << 6 | (byte(2) & 0x3FU);
  if (bytes == 4)
    point =
        (point & 0x07) << 18 | (byte(1) & 0x3FU) << 12 | (byte(2) & 0x3FU) << 6 | (byte(3) & 0x3FU);
  at += bytes;
  return point;
}

// White space as Unicode has it: what Oniguruma's \s and Rust's is_whitespace are.
[[nodiscard]] constexpr bool is_white_space(std::uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

// A character that PCRE2 and utf8proc know, of the same category and length in UTF-8; mostly
// itself.
[[nodiscard]] std::uint32_t stand_in_of(std::uint32_t point);
// The text with stand-ins, byte for byte as long; `storage` has it if there are any.
[[nodiscard]] std::string_view with_stand_ins(std::string_view text, std::string& storage);

}  // namespace octavo::tokenizer
