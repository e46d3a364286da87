// Gradients of attention on tensor cores: bf16, head sizes of 64 and 128.
#pragma once

#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Looks at the job alone, not at device memory.
[[nodiscard]] bool attention_backward_on_tensor_cores(const AttentionBackwardJob& job);
// Bytes of memory that it needs, at a multiple of 256; the results of a forward pass are not in it.
[[nodiscard]] std::int64_t attention_backward_tensor_core_bytes(const AttentionBackwardJob& job);

// Needs out and log_sum_exp of a forward pass. Sets *declined where the numbers are such that the
// general kernel must do the job: Inf or NaN among the inputs, or a log-sum-exp beyond 1024. Then
// nothing is written.
void attention_backward_tensor_cores(const Exec& exec, const AttentionBackwardJob& job,
                                     void* memory, unsigned* declined);

}  // namespace octavo::cuda
