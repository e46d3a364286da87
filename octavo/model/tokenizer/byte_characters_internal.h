// The characters that byte-level tokenizers write for the 256 bytes: printable Latin-1 for itself,
// U+0100 and on for the rest.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace octavo::tokenizer {

[[nodiscard]] const std::array<std::uint32_t, 256>& byte_characters();
// Bytes as such characters.
[[nodiscard]] std::string to_byte_characters(std::string_view bytes);
// And back; none if a character is not one of them.
[[nodiscard]] std::optional<std::string> from_byte_characters(std::string_view text);

}  // namespace octavo::tokenizer
