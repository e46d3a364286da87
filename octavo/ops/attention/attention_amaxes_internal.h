// The largest magnitudes of a call, for those who choose scales by them.
#pragma once

#include "octavo/ops/attention/attention_call_internal.h"

namespace octavo {

// The largest magnitude of the scores that rows see, from the inputs of the call's rung; NaN where
// there is one. On the CPU; costs another product of Q and K.
[[nodiscard]] float score_amax(const AttentionCall& call);

}  // namespace octavo
