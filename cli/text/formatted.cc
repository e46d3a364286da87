#include "cli/text/formatted.h"

#include <fmt/format.h>

namespace octavo::cli {

std::string formatted_args(fmt::string_view text, fmt::format_args args) {
  return fmt::vformat(text, args);
}

}  // namespace octavo::cli
