// Numbers of 64 bits as sixteen hexadecimal digits: hashes and checksums in files.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace octavo {

[[nodiscard]] inline std::string hex_of(std::uint64_t value) {
  std::string digits(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) digits[i] = "0123456789abcdef"[value & 15];
  return digits;
}

// Nothing where the text is not sixteen of those digits.
[[nodiscard]] inline std::optional<std::uint64_t> parse_hex(std::string_view digits) {
  std::uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, value, 16);
  if (digits.size() != 16 || stopped != end || error != std::errc()) return std::nullopt;
  return value;
}

}  // namespace octavo
