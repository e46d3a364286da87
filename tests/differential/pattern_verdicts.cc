// Verdicts of octavo::Pattern for check_patterns.py. A line of input is a JSON array of an
// expression and texts; a line of output is "refused", or for every text "-", "s" (found by is_in)
// or "m" (by begins too).
#include <cstdio>
#include <iostream>
#include <string>

#include "octavo/base/error.h"
#include "octavo/base/json/json.h"
#include "octavo/base/pattern/pattern.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const octavo::Json input = octavo::parse_json(line, "input");
    std::string out;
    try {
      const octavo::Pattern pattern(input.elements().at(0).string_or(""));
      for (std::size_t i = 1; i < input.elements().size(); ++i) {
        const std::string_view text = input.elements()[i].string_or("");
        out += pattern.begins(text) ? 'm' : pattern.is_in(text) ? 's' : '-';
      }
    } catch (const octavo::Error&) {
      out = "refused";
    }
    std::printf("%s\n", out.c_str());
  }
  return 0;
}
