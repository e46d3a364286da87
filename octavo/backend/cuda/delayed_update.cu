// The end of a step of delayed scaling: a thread a tensor, after the count of calls has been moved
// on once for all of them.
#include "octavo/backend/cuda/kernels_internal.h"
#include "octavo/backend/cuda/runtime.h"
#include "octavo/scale/delayed_step.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void count_kernel(const __grid_constant__ DelayedJob job) {
  job.calls.set(0, job.reset ? 0.0F : delayed_count(job.calls[0], job.interval));
}

__global__ void __launch_bounds__(kThreads) step_kernel(const __grid_constant__ DelayedJob job) {
  const std::int64_t tensor = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (tensor >= job.tensors) return;
  if (job.reset) {
    delayed_reset(job, tensor);
  } else {
    delayed_step(job, tensor, job.calls.data == nullptr || job.calls[0] == 0.0F);
  }
}

}  // namespace

void delayed_update(const Exec& exec, const DelayedJob& job) {
  const Scope scope(exec);
  if (job.calls.data != nullptr) {
    count_kernel<<<1, 1, 0, stream_of(exec)>>>(job);
    OCTAVO_CUDA_LAUNCHED("count_kernel");
  }
  if (job.tensors == 0) return;
  step_kernel<<<blocks_for(job.tensors, kThreads), kThreads, 0, stream_of(exec)>>>(job);
  OCTAVO_CUDA_LAUNCHED("step_kernel");
}

}  // namespace octavo::cuda
