// The forward kernel of attention: warp-specialised and persistent. Consumer warpgroups, of 64 rows
// each, multiply and take softmaxes; one thread of the producer warpgroup loads by TMA, through
// rings of stages with full and empty mbarriers.
#pragma once

#include "octavo/backend/cuda/attention/forward/forward_fp8_consumer.cuh"
#include "octavo/backend/cuda/hopper/pdl.cuh"
#include "octavo/backend/cuda/hopper/setmaxnreg.cuh"

namespace octavo::cuda {

template <typename Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1)
    attention_forward_kernel(const __grid_constant__ ForwardPlan plan) {
  extern __shared__ unsigned char memory[];
  const ForwardPipeline<Kernel> pipeline{(shared_address(memory) + 1023) & ~1023u};
  const int thread = static_cast<int>(threadIdx.x);
  const int group = __shfl_sync(0xFFFFFFFFu, thread / 128, 0);
  if (thread == 0) pipeline.init();
  if constexpr (Kernel::kOnesBytes > 0) {
    constexpr std::uint32_t kOne = Kernel::kIsFast ? 0x38383838u : 0x3F803F80u;  // e4m3 or bf16
    constexpr int kOfStage = Kernel::kOnesBytes / 16;
    for (int i = thread; i < Kernel::kStages * kOfStage; i += Kernel::kThreads)
      store_shared_vector(pipeline.v(i / kOfStage) + Kernel::kVLoaded + i % kOfStage * 16,
                          {kOne, kOne, kOne, kOne});
    fence_proxy_async();
  }
  if (thread == Kernel::kGroups * 128) {
    prefetch_tensor_map(plan.q);
    prefetch_tensor_map(plan.k);
    prefetch_tensor_map(plan.v);
  }
  __syncthreads();
  pdl_wait();
  if (group == Kernel::kGroups) {
    setmaxnreg_dec<Kernel::kProducerRegisters>();
    if (thread % 128 == 0) ForwardProducer<Kernel>(plan, pipeline).run();
  } else {
    setmaxnreg_inc<Kernel::kConsumerRegisters>();
    if constexpr (Kernel::kIsFast)
      ForwardFp8Consumer<Kernel>(plan, pipeline, group).run();
    else
      ForwardConsumer<Kernel>(plan, pipeline, group).run();
  }
}

}  // namespace octavo::cuda
