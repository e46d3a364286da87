// A kernel that breaks the context, as a bug in a user's program would.
#pragma once

#include <cuda_runtime_api.h>

namespace octavo::support {

void write_to_nowhere(cudaStream_t stream);

}  // namespace octavo::support
