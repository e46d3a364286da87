// Decode attention: one to eight queries a head against long K and V, contiguous or paged, read
// once. Splits of the keys are summed by different blocks and joined in a fixed order.
#pragma once

#include <cstdint>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Whether attention_decode takes this job. Looks at the job alone, not at device memory.
[[nodiscard]] bool attention_decode_offered(const AttentionJob& job);
// Bytes of workspace for the partial results.
[[nodiscard]] std::int64_t attention_decode_workspace(const Exec& exec, const AttentionJob& job);
void attention_decode(const Exec& exec, const AttentionJob& job);

}  // namespace octavo::cuda
