// Names in a file of statistics: what follows the name of a module. docs/numerics/statistics.md.
#pragma once

#include <string_view>

namespace octavo::eval {

inline constexpr std::string_view kStatisticsFormat = "octavo.statistics", kStatisticsVersion = "1";
inline constexpr std::string_view kFingerprintVersionKey = "model_fingerprint_version";

inline constexpr std::string_view kAmax = ".amax", kMeanSquare = ".mean_square", kRows = ".rows",
                                  kBlockHessians = ".block_hessian", kHessian = ".hessian",
                                  kKeys = ".k_amax", kValues = ".v_amax",
                                  kExpertTokens = ".expert_tokens";

}  // namespace octavo::eval
