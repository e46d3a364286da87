// A small writer of SVG: shapes with a CSS class each. Coordinates are pixels, y downwards.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace octavo::cli {

// Bytes that are no character of XML become the replacement character.
std::string escape_xml(std::string_view text);

class Svg {
 public:
  // `title` and `description` are read aloud by screen readers.
  Svg(double width, double height, std::string_view title, std::string_view description,
      std::string_view css);

  void rect(double x, double y, double width, double height, std::string_view css_class,
            double radius = 0);
  void line(double x1, double y1, double x2, double y2, std::string_view css_class);
  // `anchor`: start, middle or end.
  void text(double x, double y, std::string_view content, std::string_view css_class,
            std::string_view anchor = "start");
  void path(std::string_view data, std::string_view css_class);
  // An unseen area that shows `content` when pointed at.
  void tooltip(double x, double y, double width, double height, std::string_view content);

  [[nodiscard]] std::string finish() &&;

 private:
  std::string body_;
};

// Upright strokes collected into one path, so that thousands of them stay one element. A stroke
// that would fall on the last one (less than a fifth of a pixel away, not longer) is left out.
class Strokes {
 public:
  void add(double x, double top, double bottom);
  [[nodiscard]] const std::string& data() const { return data_; }

 private:
  std::string data_;
  double last_x_ = -1e9, last_length_ = 0;
};

// Positions along an axis. Halves, because twice the largest value of a wide format is no double.
struct LinearAxis {
  double from, to;     // values
  double left, right;  // pixels
  [[nodiscard]] double at(double value) const {
    return left + (value / 2 - from / 2) / (to / 2 - from / 2) * (right - left);
  }
};

// As above for log2 of positive values; `from` and `to` are exponents.
struct LogAxis {
  double from, to;
  double left, right;
  [[nodiscard]] double at(double value) const;
  [[nodiscard]] double at_exponent(double exponent) const {
    return left + (exponent - from) / (to - from) * (right - left);
  }
};

}  // namespace octavo::cli
