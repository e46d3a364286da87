// Attention on Hopper's tensor cores: rungs `bf16`, `strict`, `balanced` and `fast`, for head sizes
// up to 256.
#pragma once

#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Whether attention_forward takes this job. Looks at the job alone, not at device memory.
[[nodiscard]] bool attention_forward_offered(const AttentionJob& job);
// Bytes of workspace, for operands that are prepared.
[[nodiscard]] std::int64_t attention_forward_workspace(const Exec& exec, const AttentionJob& job);
void attention_forward(const Exec& exec, const AttentionJob& job);

}  // namespace octavo::cuda
