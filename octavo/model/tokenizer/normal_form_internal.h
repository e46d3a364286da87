// Normal forms of Unicode, lower case and numbers, as the `tokenizers` package has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace octavo::tokenizer {

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

// The text is valid UTF-8. Takes time in proportion to it, up to a logarithm for runs of marks.
[[nodiscard]] std::string normal_form(std::string_view text, NormalForm form);

// Each character by itself, as Rust's char::to_lowercase.
[[nodiscard]] std::string lower_case(std::string_view text);

// Numbers of any kind (Nd, Nl, No).
[[nodiscard]] bool is_numeric(std::uint32_t point);

// The library that octavo was built without, and that all of these need; else "".
[[nodiscard]] std::string_view missing_for_normal_forms();

}  // namespace octavo::tokenizer
