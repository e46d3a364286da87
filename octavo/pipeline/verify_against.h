// verify_against: are the weights of a checkpoint those of the model that it was made from? Finds
// every changed scale, code and number: what verify() alone can only suspect, or cannot see.
#pragma once

#include <string>
#include <vector>

#include "octavo/base/macros.h"
#include "octavo/checkpoint/verify/verify.h"

namespace octavo {

// Findings of the rule `against`, for all loaders, in the order of names. A quantized value may be
// half a step of its code from the model's, one at the largest code any distance below the model's;
// a value that is not quantized is the model's, rounded to its type. Weights that were not rounded
// to nearest (GPTQ) are findings, too. Throws Error where the two have no tensor in common.
[[nodiscard]] OCTAVO_API std::vector<Finding> verify_against(const std::string& checkpoint,
                                                             const std::string& model,
                                                             int threads = 0);

}  // namespace octavo
