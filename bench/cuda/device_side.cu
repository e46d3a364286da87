#include "bench/cuda/device_side.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace octavo::bench {
namespace {

// A 64-bit mixer: neighbours must not resemble each other; no more is needed.
__device__ std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDu;
  x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53u;
  return x ^ x >> 33;
}

// Box-Muller.
__device__ float normal(std::int64_t i) {
  const std::uint64_t bits = mixed(static_cast<std::uint64_t>(i) + 0x9E3779B97F4A7C15u);
  const float a = (static_cast<float>(bits >> 40) + 0.5F) * 0x1p-24F,
              b = static_cast<float>(bits & 0xFFFFFF) * 0x1p-24F;
  return sqrtf(-2.0F * logf(a)) * cospif(2.0F * b);
}

template <typename T>
__global__ void fill(T* values, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    values[i] = static_cast<T>(normal(i));
}

__global__ void copy(uint4* to, const uint4* from, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i];
}

}  // namespace

void fill_normal(void* values, Kind kind, std::int64_t count, cudaStream_t stream) {
  constexpr int kBlocks = 4096, kThreads = 256;
  switch (kind) {
    case Kind::f32:
      fill<<<kBlocks, kThreads, 0, stream>>>(static_cast<float*>(values), count);
      break;
    case Kind::bf16:
      fill<<<kBlocks, kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(values), count);
      break;
    case Kind::f16:
      fill<<<kBlocks, kThreads, 0, stream>>>(static_cast<__half*>(values), count);
  }
}

void copy_vectors(void* to, const void* from, std::int64_t bytes, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const std::int64_t count = bytes / 16;
  copy<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), count);
}

}  // namespace octavo::bench
