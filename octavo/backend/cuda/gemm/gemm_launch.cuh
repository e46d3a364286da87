// Launches the GEMM kernel of one pair of formats by tile shape and kind of scales.
#pragma once

#include <iterator>

#include "octavo/backend/cuda/gemm/gemm_kernel.cuh"
#include "octavo/backend/cuda/hopper/cluster_launch.cuh"
#include "octavo/base/error.h"

namespace octavo::cuda {

template <typename Kernel>
void launch_gemm(const Exec& exec, const GemmPlan& plan) {
  launch_clusters<Kernel, gemm_kernel<Kernel>>(exec, plan.schedule.clusters, plan);
}

template <Mma kMma, GemmShape kShape>
void launch_shape(const Exec& exec, const GemmPlan& plan, ScaleKind scales) {
  constexpr GemmElement kElement = is_fp8(kMma)        ? GemmElement::fp8
                                   : kMma == Mma::bf16 ? GemmElement::bf16
                                                       : GemmElement::f16;
  const auto launch = [&]<ScaleKind kScales>() {
    if constexpr (has_kernel(kElement, kShape, kScales))
      launch_gemm<GemmKernel<kMma, kShape, kScales>>(exec, plan);
    else
      fail(ErrorCode::internal, "gemm", "no kernel for this tile shape and kind of scales");
  };
  switch (scales) {
    case ScaleKind::at_end:
      return launch.template operator()<ScaleKind::at_end>();
    case ScaleKind::by_row:
      return launch.template operator()<ScaleKind::by_row>();
    case ScaleKind::by_column:
      return launch.template operator()<ScaleKind::by_column>();
    case ScaleKind::by_element:
      return launch.template operator()<ScaleKind::by_element>();
  }
}

#ifdef OCTAVO_CUDA_ONE_CONFIG
template <Mma kMma>
void launch_mma(const Exec& exec, const GemmPlan& plan, const GemmShape&, ScaleKind) {
  if constexpr (kMma == Mma::e4m3_e4m3)
    launch_gemm<GemmKernel<kMma, kWide, ScaleKind::by_row>>(exec, plan);
  if constexpr (kMma == Mma::bf16)
    launch_gemm<GemmKernel<kMma, kWide, ScaleKind::at_end>>(exec, plan);
}
#else
template <Mma kMma, int kIndex = 0>
void launch_mma(const Exec& exec, const GemmPlan& plan, const GemmShape& shape, ScaleKind scales) {
  if constexpr (kIndex < static_cast<int>(std::size(kGemmShapes))) {
    if (shape == kGemmShapes[kIndex])
      return launch_shape<kMma, kGemmShapes[kIndex]>(exec, plan, scales);
    launch_mma<kMma, kIndex + 1>(exec, plan, shape, scales);
  } else {
    fail(ErrorCode::internal, "gemm", "no kernel for this tile shape");
  }
}
#endif

}  // namespace octavo::cuda
