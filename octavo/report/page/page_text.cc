#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "octavo/base/error.h"
#include "octavo/format/parse_format.h"
#include "octavo/report/page/page_internal.h"

namespace octavo::page {
namespace {

std::string hex(std::uint32_t value, int digits) {
  std::string out;
  for (int i = digits - 1; i >= 0; --i) out += "0123456789abcdef"[value >> (4 * i) & 15];
  return out;
}

// The length of the well-formed UTF-8 character that `text` begins with, and its code point; 0 if
// there is none (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
std::size_t character(std::string_view text, std::uint32_t& point) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t first = byte(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  point = length == 1 ? first : first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<std::uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xD800 && point < 0xE000;
  return point < kLeast[length] || point > 0x10FFFF || surrogate ? 0 : length;
}

bool is_invisible(std::uint32_t point) {
  return point < 0x20 || (point >= 0x7F && point < 0xA0) || (point >= 0x200B && point <= 0x200F) ||
         (point >= 0x2028 && point <= 0x202E) || (point >= 0x2060 && point <= 0x206F) ||
         point == 0xFEFF || (point >= 0xFFF0 && point <= 0xFFFF);
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    std::uint32_t point = 0;
    const std::size_t length = character(text, point);
    if (length == 0) {
      out += "\\x" + hex(static_cast<unsigned char>(text[0]), 2);
    } else if (is_invisible(point)) {
      out += point < 0x100 ? "\\x" + hex(point, 2) : "\\u" + hex(point, 4);
    } else if (point == '&') {
      out += "&amp;";
    } else if (point == '<') {
      out += "&lt;";
    } else if (point == '>') {
      out += "&gt;";
    } else if (point == '"') {
      out += "&quot;";
    } else if (point == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

// to_chars, because printf writes a comma where the program's locale has one.
std::string fixed(double value, int digits) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 400> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::fixed, digits);
  return {buffer.data(), end.ptr};
}

std::string brief(double value) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::general, 3);
  return {buffer.data(), end.ptr};
}

std::string grouped(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t at = digits.size(); at > 3 + (count < 0 ? 1U : 0U);) digits.insert(at -= 3, ",");
  return digits;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  return fixed(size, unit == 0 ? 0 : size < 10 ? 2 : size < 100 ? 1 : 0) + " " + kUnits[unit];
}

std::string share_text(double share) {
  if (share == 0) return "0";
  return share < 1e-6 ? "<0.0001 %" : fixed(100 * share, share < 1e-3 ? 4 : 2) + " %";
}

std::string cosine_text(double cosine) {
  const double missing = 1 - cosine;
  if (!(missing > 0)) return cosine == 1 ? "1" : fixed(cosine, 6);
  const int digits = static_cast<int>(std::ceil(-std::log10(missing))) + 1;
  return fixed(cosine, digits < 4 ? 4 : digits > 12 ? 12 : digits);
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out;
  for (const std::int64_t extent : shape)
    out += (out.empty() ? "" : " × ") + std::to_string(extent);
  return out.empty() ? "scalar" : out;
}

std::string signed_text(double decibels) {
  const std::string digits = fixed(decibels, 1);
  if (!std::isfinite(decibels)) return digits;
  return digits == "-0.0" ? "0.0" : decibels > 0 && digits != "0.0" ? "+" + digits : digits;
}

// Expressions have no quote in them (expression_for in pipeline/plan); one from elsewhere ends the
// quotes, is quoted by itself, and begins them again.
std::string option_text(std::string_view recipe_for) {
  std::string quoted;
  for (const char c : recipe_for) {
    if (c == '\'') quoted += "'\\'";
    quoted += c;
  }
  return text("<code class=\"option\">--recipe-for ", escaped("'" + quoted + "'"), "</code>");
}

Place place_of(std::string_view module) {
  Place place;
  std::string before;  // components up to the first number
  while (!module.empty()) {
    const std::size_t end = module.find('.');
    const std::string_view part = module.substr(0, end);
    const bool number = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    if (number && place.layer < 0) {
      place.layer = std::atoll(std::string(part).c_str());
      place.stack = before;
      before.clear();
    } else {
      before += (before.empty() ? "" : ".") + (number ? std::string("*") : std::string(part));
    }
    module.remove_prefix(end == std::string_view::npos ? module.size() : end + 1);
  }
  place.module = before;
  return place;
}

std::optional<Format> format_of(const TensorReport& tensor) {
  std::string_view line = tensor.scaling;
  line = line.substr(0, line.find(','));  // "mxfp8: e4m3fn"
  if (const std::size_t colon = line.find(": "); colon != std::string_view::npos)
    line.remove_prefix(colon + 2);
  try {
    return parse_format(line);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace octavo::page
