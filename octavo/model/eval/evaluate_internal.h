// evaluate() on models that are open already.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "octavo/model/eval/eval_model_internal.h"
#include "octavo/model/eval/evaluate.h"
#include "octavo/model/eval/hidden_difference_internal.h"
#include "octavo/model/eval/token_sums_internal.h"
#include "octavo/model/eval/token_windows_internal.h"

namespace octavo::eval {

// With options.against the first of the models is the original.
[[nodiscard]] ModelEvaluation evaluate_models(std::span<const EvalModel* const> models,
                                              const EvaluateOptions& options);

// What the walk has seen of hidden states, [model][layer + 1][text].
using Differences = std::vector<std::vector<std::vector<DifferenceSums>>>;

// Numbers of all texts and models, from sums.
[[nodiscard]] std::vector<EvaluatedModel> conclude(std::span<const EvalModel* const> models,
                                                   const TokenWindows& windows,
                                                   const std::vector<std::vector<TokenSums>>& sums,
                                                   const Differences& differences,
                                                   bool against_first);

}  // namespace octavo::eval
