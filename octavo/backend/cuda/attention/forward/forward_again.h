// Rows that the forward kernel marks, done again with scores and weights in f32.
#pragma once

#include "octavo/backend/cuda/attention/forward/forward_plan.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Those of the plan's `doubts` and `row_doubts`.
void attention_rows_again(const Exec& exec, const ForwardPlan& plan);

}  // namespace octavo::cuda
