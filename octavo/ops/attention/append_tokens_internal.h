// Dispatch of the append to a KV cache.
#pragma once

#include "octavo/backend/append_job.h"
#include "octavo/backend/kernels.h"

namespace octavo {

// On a device, counts and lengths are in its memory; nothing waits.
void append_tokens(const Exec& exec, const AppendJob& job);

}  // namespace octavo
