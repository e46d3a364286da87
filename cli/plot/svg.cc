#include "cli/plot/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "cli/text/formatted.h"

namespace octavo::cli {
namespace {

// Two decimals, no trailing zeros: what a screen can show, in few bytes.
std::string px(double value) {
  std::string out = formatted("{:.2f}", value);
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

// How many bytes the first character of a text has; 0 where it is none that XML may hold: names of
// files are any bytes, not only UTF-8.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 || text[0] == '\n' || text[0] == '\t' ? 1 : 0;
  const std::size_t size = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < size) return 0;
  std::uint32_t point = byte(0) & (0x7Fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3Fu);
  }
  constexpr std::array<std::uint32_t, 5> kSmallest{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  const bool noncharacter = point == 0xFFFE || point == 0xFFFF;
  return point < kSmallest[size] || point > 0x10FFFF || surrogate || noncharacter ? 0 : size;
}

}  // namespace

std::string escape_xml(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(size, 1));
    text.remove_prefix(character.size());
    if (size == 0) {
      out += "\uFFFD";
    } else if (character == "&") {
      out += "&amp;";
    } else if (character == "<") {
      out += "&lt;";
    } else if (character == ">") {
      out += "&gt;";
    } else if (character == "\"") {
      out += "&quot;";
    } else {
      out += character;
    }
  }
  return out;
}

Svg::Svg(double width, double height, std::string_view title, std::string_view description,
         std::string_view css) {
  body_ = formatted(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\">\n"
      "<title>{2}</title>\n<desc>{3}</desc>\n<style>{4}</style>\n",
      px(width), px(height), escape_xml(title), escape_xml(description), css);
  rect(0, 0, width, height, "paper");
}

void Svg::rect(double x, double y, double width, double height, std::string_view css_class,
               double radius) {
  const std::string rounded = radius > 0 ? formatted(" rx=\"{}\"", px(radius)) : "";
  body_ += formatted("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{} class=\"{}\"/>\n", px(x),
                     px(y), px(width), px(height), rounded, css_class);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view css_class) {
  body_ += formatted("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" class=\"{}\"/>\n", px(x1),
                     px(y1), px(x2), px(y2), css_class);
}

void Svg::text(double x, double y, std::string_view content, std::string_view css_class,
               std::string_view anchor) {
  const std::string anchored = anchor == "start" ? "" : formatted(" text-anchor=\"{}\"", anchor);
  body_ += formatted("<text x=\"{}\" y=\"{}\"{} class=\"{}\">{}</text>\n", px(x), px(y), anchored,
                     css_class, escape_xml(content));
}

void Svg::path(std::string_view data, std::string_view css_class) {
  if (!data.empty()) body_ += formatted("<path d=\"{}\" class=\"{}\"/>\n", data, css_class);
}

void Svg::tooltip(double x, double y, double width, double height, std::string_view content) {
  body_ += formatted(
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
      "class=\"hover\"><title>{}</title></rect>\n",
      px(x), px(y), px(width), px(height), escape_xml(content));
}

std::string Svg::finish() && { return std::move(body_) + "</svg>\n"; }

void Strokes::add(double x, double top, double bottom) {
  constexpr double kSamePlace = 0.2;
  const double length = bottom - top;
  if (std::fabs(x - last_x_) < kSamePlace && length <= last_length_) return;
  last_x_ = x;
  last_length_ = length;
  data_ += formatted("M{} {}V{}", px(x), px(top), px(bottom));
}

double LogAxis::at(double value) const { return at_exponent(std::log2(value)); }

}  // namespace octavo::cli
