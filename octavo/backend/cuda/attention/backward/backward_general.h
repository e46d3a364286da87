// General gradients of attention: every job of values that the kernel interface can say, without
// tensor cores. Row by row of sums in a fixed order, so that results do not depend on timing.
#pragma once

#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Bytes of memory that it needs, at a multiple of 16.
[[nodiscard]] std::int64_t attention_backward_general_bytes(const AttentionBackwardJob& job);
// Does nothing where `wanted` is given and is 0 when the kernels run.
void attention_backward_general(const Exec& exec, const AttentionBackwardJob& job, void* memory,
                                const unsigned* wanted);

}  // namespace octavo::cuda
