// UTF-8 validation and JSON string escapes, shared by the reader and the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace octavo {

// The first byte that is not UTF-8 (overlong forms and surrogates included), or npos.
[[nodiscard]] std::size_t find_bad_utf8(std::string_view text);

// A code point as UTF-8.
void append_utf8(std::string& out, std::uint32_t point);

// A string in quotes, with the escapes it needs and no others. The value must be UTF-8.
void append_json_string(std::string& out, std::string_view value);

}  // namespace octavo
