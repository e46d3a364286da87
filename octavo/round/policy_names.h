// Names of rounding, overflow and NaN policies (EncodePolicy) and their parsers, shared by Python
// and the command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/round/policy.h"

namespace octavo {

OCTAVO_API std::string_view name_of(Rounding rounding);
OCTAVO_API std::string_view name_of(Overflow overflow);
OCTAVO_API std::string_view name_of(NanInput nan_input);

// These throw Error(invalid_argument) that lists the known names.
OCTAVO_API Rounding parse_rounding(std::string_view name);
OCTAVO_API Overflow parse_overflow(std::string_view name);
OCTAVO_API NanInput parse_nan_input(std::string_view name);

OCTAVO_API std::vector<std::string> rounding_names();
OCTAVO_API std::vector<std::string> overflow_names();
OCTAVO_API std::vector<std::string> nan_input_names();

}  // namespace octavo
