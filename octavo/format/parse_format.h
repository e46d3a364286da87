// Names to formats and back.
//   e<E>m<M>          IEEE 754 rules: Inf, NaN, two zeros
//   ...fn             no Inf; NaN at all ones in formats of eight bits or more, none below
//   ...fnuz           no Inf, one zero, NaN where minus zero would be
//   ...fnu            as fn, unsigned; with m0 also no zero (e8m0fnu)
//   e0m<M>, e0m<M>fnu fixed point: sign and magnitude, or unsigned; no Inf, no NaN. Bias 0: the
//                     integer times 2^(1 - M), as in mxint8
//   ...b<N>           bias N, before the letters: e4m3b11fnuz
// and the names of other libraries: float8_e4m3fn, torch.float8_e5m2, float4_e2m1fn.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "octavo/base/macros.h"
#include "octavo/format/named_formats.h"

namespace octavo {

// Throws Error(invalid_argument) that says why a name is not a format.
OCTAVO_API Format parse_format(std::string_view name);

// The canonical name; parse_format(format_name(f)) == f for every valid format.
OCTAVO_API std::string format_name(const Format& format);

// Why a Format built by hand cannot be used, or nothing when it can. A valid format has 2 to 16
// bits, at least one finite value that is not zero, and only values that are exact doubles.
OCTAVO_API std::optional<std::string> format_problem(const Format& format);

}  // namespace octavo
