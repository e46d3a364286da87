// K and V in pages on the CPU: brought together, because the CPU kernels read runs of memory.
#pragma once

#include "octavo/ops/attention/attention_call_internal.h"

namespace octavo {

// The call with K and V of each batch side by side.
void attend_pages(const AttentionCall& call, const View& out);

}  // namespace octavo
