// Device code of the benchmark: test data, and the copy kernel that is the ceiling for everything
// else.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace octavo::bench {

enum class Kind { f32, bf16, f16 };

// Normal deviates, the same for every run.
void fill_normal(void* values, Kind kind, std::int64_t count, cudaStream_t stream);

// 16 bytes per thread; `bytes` is a multiple of 16.
void copy_vectors(void* to, const void* from, std::int64_t bytes, cudaStream_t stream);

}  // namespace octavo::bench
