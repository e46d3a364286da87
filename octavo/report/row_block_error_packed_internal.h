// A RowBlockError as a line of text and back: small in memory, and a string of a file's record.
#pragma once

#include <string>
#include <string_view>

#include "octavo/report/row_block_error.h"

namespace octavo {

[[nodiscard]] std::string packed_row_block(const RowBlockError& row_block);
// Of a text that is not as packed_row_block writes it, zeros: the file that it came from may be
// anybody's.
[[nodiscard]] RowBlockError unpacked_row_block(std::string_view text);

}  // namespace octavo
