// Attention rung `auto`: chooses a rung per head and range of rows.
#pragma once

#include "octavo/ops/attention/attention_call_internal.h"

namespace octavo {

struct AttentionResult {
  AttentionOperand out{};
  float* log_sum_exp = nullptr;
  float* p_amax = nullptr;  // as in AttentionJob
};
void attention_automatic(const AttentionCall& call, const AttentionResult& result,
                         const Exec& exec);
// The same by certified bounds (AttentionOptions::certified).
void attention_certified(const AttentionCall& call, const AttentionResult& result,
                         const Exec& exec);

}  // namespace octavo
