#include "cli/terminal/shown_text.h"

#include "cli/text/formatted.h"

namespace octavo::cli {

std::string shown_text(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    // C1 controls (U+0080 to U+009F) have two bytes; some terminals take U+009B for ESC [.
    const bool is_c1 =
        byte == 0xC2 && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xA0;
    if (is_c1) {
      out += formatted("\\x{:02x}", static_cast<unsigned char>(text[++at]));
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      out += formatted("\\x{:02x}", byte);
    } else {
      out += text[at];
    }
  }
  return out;
}

}  // namespace octavo::cli
