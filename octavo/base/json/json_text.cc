#include <cstdint>

#include "octavo/base/json/json_text_internal.h"

namespace octavo {

std::size_t find_bad_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&text](std::size_t j) -> std::uint32_t {
      return j < text.size() ? static_cast<unsigned char>(text[j]) : 0;
    };
    const std::uint32_t lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    // The second byte's range excludes overlong forms, surrogates and what is beyond U+10FFFF.
    std::size_t length = 0;
    std::uint32_t low = 0x80, high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) length = 2;
    if (lead >= 0xE0 && lead <= 0xEF) length = 3;
    if (lead >= 0xF0 && lead <= 0xF4) length = 4;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    if (length == 0 || byte(i + 1) < low || byte(i + 1) > high) return i;
    for (std::size_t j = 2; j < length; ++j) {
      if ((byte(i + j) & 0xC0) != 0x80) return i;
    }
    i += length;
  }
  return std::string_view::npos;
}

void append_utf8(std::string& out, std::uint32_t point) {
  const auto put = [&out](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6), put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12), put(0x80 | (point >> 6 & 0x3F)), put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F)), put(0x80 | (point & 0x3F));
  }
}

void append_json_string(std::string& out, std::string_view value) {
  constexpr std::string_view kSpecial = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt",
                             kHex = "0123456789abcdef";
  out += '"';
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    const std::size_t special = kSpecial.find(c);
    if (special != std::string_view::npos) {
      (out += '\\') += kLetters[special];
    } else if (byte < 0x20) {
      ((out += "\\u00") += kHex[byte >> 4]) += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace octavo
