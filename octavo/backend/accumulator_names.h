// Names of the GEMM accumulators, as options, recipes and Python spell them, and their parser.
#pragma once

#include <string_view>

#include "octavo/backend/gemm_job.h"
#include "octavo/base/macros.h"

namespace octavo {

[[nodiscard]] OCTAVO_API std::string_view name_of(Accumulator accumulator);  // "float16"
// Throws Error(invalid_argument) in the name of `op`.
[[nodiscard]] OCTAVO_API Accumulator parse_accumulator(std::string_view name,
                                                       std::string_view op = "gemm");

}  // namespace octavo
