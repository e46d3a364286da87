// Paged K and V on the CPU: gathered into contiguous memory, which the CPU kernels read.
#pragma once

#include "octavo/ops/attention/attention_call_internal.h"

namespace octavo {

// The call with K and V of each batch side by side.
void attend_pages(const AttentionCall& call, const View& out);

}  // namespace octavo
