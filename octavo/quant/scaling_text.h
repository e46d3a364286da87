// A Scaling as one line of text and back, without loss: for files and reports that outlive the
// program. "format=e4m3fn tile=1x32 scale=e8m0 rule=rceil ..."; what is left out is the default.
#pragma once

#include <string>
#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/quant/scaling.h"

namespace octavo {

[[nodiscard]] OCTAVO_API std::string to_text(const Scaling& scaling);

// Throws Error(invalid_argument) for keys it does not know, keys that come twice, and values that
// cannot be: a file of a later version is refused rather than misread.
[[nodiscard]] OCTAVO_API Scaling parse_scaling(std::string_view line);

}  // namespace octavo
