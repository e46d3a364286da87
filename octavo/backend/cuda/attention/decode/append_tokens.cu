// New tokens of a KV cache: a warp copies a row of codes or of scales; then lengths grow.
#include "octavo/backend/append_job.h"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;

__device__ __forceinline__ std::int64_t count_of(const AppendJob& job, std::int64_t batch) {
  const std::int64_t wanted = job.counts != nullptr ? job.counts[batch] : job.tokens;
  return max(std::int64_t{0}, min(wanted, job.capacity - job.lengths[batch]));
}

__device__ __forceinline__ void copy_row(std::byte* to, const std::byte* from, std::int64_t bytes,
                                         int lane) {
  const auto together = reinterpret_cast<std::uintptr_t>(to) |
                        reinterpret_cast<std::uintptr_t>(from) | static_cast<std::uintptr_t>(bytes);
  if (together % 16 == 0) {
    for (std::int64_t i = lane; i < bytes / 16; i += 32)
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    return;
  }
  for (std::int64_t i = lane; i < bytes; i += 32) to[i] = from[i];
}

__global__ void __launch_bounds__(kThreads)
    append_tokens_kernel(const __grid_constant__ AppendJob job) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp,
                     token = at % job.tokens, head = at / job.tokens % job.heads,
                     batch = at / job.tokens / job.heads;
  if (batch >= job.batches || token >= count_of(job, batch)) return;
#pragma unroll
  for (int part = 0; part < AppendJob::kMostParts; ++part) {
    if (part >= job.part_count) return;
    const AppendRows& rows = job.parts[part];
    std::byte* const to = place_of_token(job, rows, batch, head, job.lengths[batch] + token);
    if (to != nullptr)
      copy_row(to,
               rows.from + batch * rows.from_batch + head * rows.from_head + token * rows.from_row,
               rows.bytes, lane);
  }
}

__global__ void __launch_bounds__(kThreads)
    grow_lengths_kernel(const __grid_constant__ AppendJob job) {
  const std::int64_t batch = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (batch < job.batches) job.lengths[batch] += count_of(job, batch);
}

}  // namespace

void append_tokens(const Exec& exec, const AppendJob& job) {
  const Scope scope(exec);
  const std::int64_t rows = job.batches * job.heads * job.tokens;
  if (rows == 0) return;
  append_tokens_kernel<<<blocks_for(rows, kWarps), kThreads, 0, stream_of(exec)>>>(job);
  OCTAVO_CUDA_LAUNCHED("append_tokens_kernel");
  grow_lengths_kernel<<<blocks_for(job.batches, kThreads), kThreads, 0, stream_of(exec)>>>(job);
  OCTAVO_CUDA_LAUNCHED("grow_lengths_kernel");
}

}  // namespace octavo::cuda
