// Delayed scaling: the update at the end of a step, one block per tensor, after the call counter
// has been advanced once for all of them. A window has about a thousand amaxes, which is long for
// one thread.
#include "octavo/backend/cuda/device/block_reduce.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"
#include "octavo/scale/delayed_step.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void count_kernel(const __grid_constant__ DelayedJob job) {
  job.calls.set(0, job.reset ? 0.0F : delayed_count(job.calls[0], job.interval));
}

// window_amax by all threads of a block, where the order does not matter.
__device__ float block_window_amax(const DelayedJob& job, const FloatRow& history) {
  if (job.policy != HistoryPolicy::max) return window_amax(job, history);
  std::uint32_t most = 0;
  for (std::int64_t i = threadIdx.x; i < job.length; i += kThreads) {
    const float amax = history[i];
    if (amax > 0.0F) most = max(most, __float_as_uint(amax));
  }
  return __uint_as_float(block_amax(most));
}

__device__ void block_roll(const DelayedJob& job, const FloatRow& history, float newest) {
  for (std::int64_t first = 1; first < job.length; first += kThreads) {
    const std::int64_t i = first + threadIdx.x;
    const float next = i + 1 < job.length ? history[i + 1] : newest;
    __syncthreads();
    if (i < job.length) history.set(i, next);
    __syncthreads();
  }
  if (threadIdx.x == 0) history.set(0, 0.0F);
}

__global__ void __launch_bounds__(kThreads) step_kernel(const __grid_constant__ DelayedJob job) {
  const std::int64_t tensor = blockIdx.x;
  const FloatRow history = delayed_history(job, tensor);
  if (job.reset) {
    for (std::int64_t i = threadIdx.x; i < job.length; i += kThreads) history.set(i, 0.0F);
    if (threadIdx.x == 0) {
      set_delayed_scale(job, tensor, 1.0F);
      if (job.last.data != nullptr) job.last.set(tensor, 0.0F);
    }
    return;
  }
  const float newest = history[0];
  if (newest == 0.0F) return;  // the tensor was not quantized in this step
  if (threadIdx.x == 0 && job.last.data != nullptr) job.last.set(tensor, newest);
  if (job.calls.data == nullptr || job.calls[0] == 0.0F) {
    const float amax = block_window_amax(job, history);
    if (threadIdx.x == 0) make_delayed_scale(job, tensor, amax);
  }
  __syncthreads();
  block_roll(job, history, newest);
}

}  // namespace

void delayed_update(const Exec& exec, const DelayedJob& job) {
  const Scope scope(exec);
  if (job.calls.data != nullptr) {
    count_kernel<<<1, 1, 0, stream_of(exec)>>>(job);
    OCTAVO_CUDA_LAUNCHED("count_kernel");
  }
  if (job.tensors == 0) return;
  step_kernel<<<blocks_for(job.tensors, 1), kThreads, 0, stream_of(exec)>>>(job);
  OCTAVO_CUDA_LAUNCHED("step_kernel");
}

}  // namespace octavo::cuda
