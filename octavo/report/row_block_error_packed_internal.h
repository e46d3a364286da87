// A BandError as a line of text and back: small in memory, and a string of a file's record.
#pragma once

#include <string>
#include <string_view>

#include "octavo/report/row_block_error.h"

namespace octavo {

[[nodiscard]] std::string packed_band(const BandError& band);
// Of a text that is not as packed_band writes it, zeros: the file that it came from may be
// anybody's.
[[nodiscard]] BandError unpacked_band(std::string_view text);

}  // namespace octavo
