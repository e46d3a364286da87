// Accumulators by the names that options, recipes and Python know them by.
#pragma once

#include <string_view>

#include "octavo/backend/gemm_job.h"
#include "octavo/base/macros.h"

namespace octavo {

[[nodiscard]] OCTAVO_API std::string_view name_of(Accumulator accumulator);  // "float16"
// Throws Error(invalid_argument), of `op`.
[[nodiscard]] OCTAVO_API Accumulator parse_accumulator(std::string_view name,
                                                       std::string_view op = "gemm");

}  // namespace octavo
