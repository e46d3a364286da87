// The two output streams: whether they are terminals, colours, and printing.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace octavo::cli {

bool is_terminal(std::FILE* stream);
std::size_t columns_of(std::FILE* stream);  // of a terminal; 80 where it does not say

// Colours only on a terminal that knows them, and never when NO_COLOR is set (no-color.org).
bool wants_color(std::FILE* stream);

class Style {
 public:
  explicit Style(std::FILE* stream) : color_(wants_color(stream)) {}

  [[nodiscard]] std::string bold(std::string_view text) const { return with("1", text); }
  [[nodiscard]] std::string dim(std::string_view text) const { return with("2", text); }
  [[nodiscard]] std::string good(std::string_view text) const { return with("32", text); }
  [[nodiscard]] std::string warn(std::string_view text) const { return with("33", text); }
  [[nodiscard]] std::string bad(std::string_view text) const { return with("31", text); }
  [[nodiscard]] std::string accent(std::string_view text) const { return with("36", text); }

 private:
  [[nodiscard]] std::string with(std::string_view code, std::string_view text) const;

  bool color_;
};

// Data for stdout. Throws Error(io) when it cannot be written: a full disk must not look like
// success.
void print(std::string_view text);
void finish_stdout();

// Messages for stderr, one line.
void say(std::string_view text);

}  // namespace octavo::cli
