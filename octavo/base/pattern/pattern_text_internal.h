// Characters of UTF-8 text and word boundaries, for regular expressions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace octavo {

// A character of UTF-8 text. A byte that begins none counts as one, beyond all code points.
struct PatternCharacter {
  std::uint32_t value = 0;
  std::size_t bytes = 1;
};
[[nodiscard]] inline PatternCharacter character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const std::uint32_t lead = byte(at);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  std::uint32_t value = lead & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if (lead < 0xC0 || (byte(at + i) & 0xC0) != 0x80) return {0x110000 + lead, 1};
    value = value << 6 | (byte(at + i) & 0x3F);
  }
  return {value, bytes};
}

// Characters beyond ASCII count as letters.
[[nodiscard]] inline bool is_word(std::string_view text, std::size_t at) {
  if (at >= text.size()) return false;
  const auto c = static_cast<unsigned char>(text[at]);
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c >= 0x80;
}

[[nodiscard]] inline bool is_boundary(std::string_view text, std::size_t at) {
  return is_word(text, at) != (at > 0 && is_word(text, at - 1));
}

// Where the character before `at` begins.
[[nodiscard]] inline std::size_t character_before(std::string_view text, std::size_t at) {
  for (std::size_t bytes = 4; bytes > 1; --bytes)
    if (at >= bytes && character_at(text, at - bytes).bytes == bytes) return at - bytes;
  return at - 1;
}

}  // namespace octavo
