// A RowBlockError as a line of text and back: compact in memory, and a string in the record of an
// output folder.
#pragma once

#include <string>
#include <string_view>

#include "octavo/report/row_block_error.h"

namespace octavo {

[[nodiscard]] std::string packed_row_block(const RowBlockError& row_block);
// Zeros for text that packed_row_block did not write: the file is untrusted.
[[nodiscard]] RowBlockError unpacked_row_block(std::string_view text);

}  // namespace octavo
