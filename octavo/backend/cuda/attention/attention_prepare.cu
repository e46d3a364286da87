// Preparation of Q and K: the mean over tokens, and rows less it, rotated; the bits of reference.
#include <algorithm>
#include <cmath>

#include "octavo/backend/attention_job.h"
#include "octavo/backend/cuda/attention/columns_in_order.cuh"
#include "octavo/backend/cuda/quantize/quantize_source.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/base/error.h"

namespace octavo::cuda {
namespace {

constexpr int kMostWarps = 8;

__device__ std::int64_t length_of(const AttentionPrepareJob& job, std::int64_t batch) {
  return job.lengths != nullptr ? job.lengths[batch] : job.from.first.rows();
}

__global__ void __launch_bounds__(kOrderedThreads)
    mean_of_tokens_kernel(const __grid_constant__ AttentionPrepareJob job, std::int64_t across) {
  const std::int64_t head = blockIdx.x / across, first_col = blockIdx.x % across * kOrderedColumns,
                     cols = job.from.first.cols(), length = length_of(job, head / job.heads);
  const double sum = sum_in_order(job.from.at(head / job.heads, head % job.heads), 0, length,
                                  first_col, [](double x) { return isfinite(x) ? x : 0.0; });
  const std::int64_t col = first_col + threadIdx.x;
  if (threadIdx.x >= kOrderedColumns || col >= cols) return;
  job.mean[head * cols + col] =
      length > 0 ? static_cast<float>(sum / static_cast<double>(length)) : 0.0F;
}

// A row in shared memory, by one warp.
__device__ void rotate(float* numbers, int cols, int lane) {
  const int group = cols & -cols;
  for (int step = 1; step < group; step *= 2) {
    __syncwarp();
    for (int i = lane; i < cols / 2; i += 32) {
      const int low = i / step * step * 2 + i % step;
      const float a = numbers[low], b = numbers[low + step];
      numbers[low] = a + b;
      numbers[low + step] = a - b;
    }
  }
  __syncwarp();
}

__global__ void __launch_bounds__(32 * kMostWarps)
    prepare_rows_kernel(const __grid_constant__ AttentionPrepareJob job, float factor) {
  extern __shared__ float all_numbers[];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int cols = static_cast<int>(job.from.first.cols());
  const std::int64_t rows = job.to.first.rows(),
                     at = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (at >= job.batches * job.heads * rows) return;
  const std::int64_t head = at / rows, row = at % rows;
  float* const numbers = all_numbers + warp * cols;
  const Matrix from = job.from.at(head / job.heads, head % job.heads).values,
               to = job.to.at(head / job.heads, head % job.heads).values;
  const float* const mean = job.mean != nullptr ? job.mean + head * cols : nullptr;
  const bool exists = row < length_of(job, head / job.heads);
  const auto sign = [](int d, float number) { return hadamard_negative(d) ? -number : number; };
  for (int d = lane; d < cols; d += 32) {
    float number = exists ? load_float(from, row, d) : 0.0F;
    if (exists && !job.undo) {
      if (mean != nullptr) number -= mean[d];
      if (job.hadamard) number = sign(d, number);
    }
    numbers[d] = number;
  }
  const bool rotates = exists && job.hadamard;
  if (rotates) rotate(numbers, cols, lane);
  for (int d = lane; d < cols; d += 32) {
    float number = numbers[d];
    if (rotates) number *= factor;
    if (exists && job.undo) {
      if (job.hadamard) number = sign(d, number);
      if (mean != nullptr) number += mean[d];
    }
    store_value(to, row, d, static_cast<double>(number));
  }
}

}  // namespace

void attention_prepare(const Exec& exec, const AttentionPrepareJob& job) {
  const Scope scope(exec);
  const std::int64_t cols = job.from.first.cols(), heads = job.batches * job.heads,
                     rows = heads * job.to.first.rows();
  if (cols == 0 || heads == 0) return;
  if (job.mean != nullptr && !job.undo) {
    const std::int64_t across = (cols + kOrderedColumns - 1) / kOrderedColumns;
    mean_of_tokens_kernel<<<blocks_for(heads * across, 1), kOrderedThreads, 0, stream_of(exec)>>>(
        job, across);
    OCTAVO_CUDA_LAUNCHED("mean_of_tokens_kernel");
  }
  if (rows == 0) return;
  constexpr std::int64_t kMostBytes = 48 << 10;
  const std::int64_t bytes = cols * static_cast<std::int64_t>(sizeof(float));
  check(bytes <= kMostBytes, ErrorCode::unsupported, "attention", "got a head size of ", cols,
        "; expected at most ", kMostBytes / 4, " on a device; use the CPU");
  const auto warps =
      static_cast<unsigned>(std::clamp<std::int64_t>(kMostBytes / bytes, 1, kMostWarps));
  const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(cols & -cols)));
  prepare_rows_kernel<<<blocks_for(rows, static_cast<int>(warps)), 32 * warps,
                        static_cast<std::size_t>(bytes) * warps, stream_of(exec)>>>(job, factor);
  OCTAVO_CUDA_LAUNCHED("prepare_rows_kernel");
}

}  // namespace octavo::cuda
