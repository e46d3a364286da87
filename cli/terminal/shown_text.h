// Text of others, such as a model's, for a terminal, which obeys control characters.
#pragma once

#include <string>
#include <string_view>

namespace octavo::cli {

// Control characters but line feed and tab as "\x1b": they would move the cursor, change the title
// or answer in the user's name. The text is UTF-8.
[[nodiscard]] std::string shown_text(std::string_view text);

}  // namespace octavo::cli
