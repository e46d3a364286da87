// Launches the forward kernel of one form by head size and scales of keys.
#pragma once

#include "octavo/backend/cuda/attention/forward/forward_choice.h"
#include "octavo/backend/cuda/attention/forward/forward_kernel.cuh"
#include "octavo/backend/cuda/hopper/cluster_launch.cuh"
#include "octavo/backend/cuda/hopper/tensor_map.h"
#include "octavo/base/error.h"

namespace octavo::cuda {

template <ForwardForm kForm, int kDepth, bool kKeyScales>
void launch_forward(const Exec& exec, const ForwardPlan& plan) {
  using Kernel = ForwardKernel<kForm, kDepth, kKeyScales>;
  launch_clusters<Kernel, attention_forward_kernel<Kernel>>(
      exec, std::min(clusters_on(exec, 1), plan.work_count), plan);
}

// kMostDepth: of the kernels of this form. kOneScale: whether there are kernels for keys that share
// a scale, or have none.
template <ForwardForm kForm, int kMostDepth, bool kOneScale>
void launch_forward_form(const Exec& exec, const ForwardPlan& plan,
                         [[maybe_unused]] const ForwardChoice& choice) {
  const auto launch = [&]<int kDepth>() {
    constexpr bool kHasScales = kForm != ForwardForm::bf16,
                   kHasOne = kOneScale && (kDepth <= 128 || !kHasScales);
    if constexpr (kHasScales)
      if (choice.key_scales || !kHasOne) return launch_forward<kForm, kDepth, true>(exec, plan);
    if constexpr (kHasOne) launch_forward<kForm, kDepth, false>(exec, plan);
  };
#ifdef OCTAVO_CUDA_ONE_CONFIG
  launch.template operator()<128>();
#else
  if (choice.depth == 64) return launch.template operator()<64>();
  if (choice.depth == 128) return launch.template operator()<128>();
  if constexpr (kMostDepth > 128) launch.template operator()<256>();
#endif
}

}  // namespace octavo::cuda
