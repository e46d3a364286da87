// Activation kernel: a row, or a part of one where that is enough, in the registers of a block.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/produce/producer_math.cuh"
#include "octavo/backend/cuda/produce/row_sink.cuh"

namespace octavo::cuda {

template <DType kSource, ProducerKind kKind, Sink kSink, int kPairs>
__global__ void __launch_bounds__(kRowThreads, kPairs == 1 ? 2 : 1)
    activate_rows_kernel(const __grid_constant__ RowPlan plan) {
  __shared__ std::uint32_t most_of_warp[32];
  const std::int64_t row = blockIdx.x;
  const auto first_pair = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  const unsigned char* from = plan.from + row * plan.from_pitch;
  float x[kPairs * kRowValues];
  bool has[kPairs];
  int pairs[kPairs];
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    pairs[p] = first_pair + p * static_cast<int>(blockDim.x);
    has[p] = pairs[p] < static_cast<int>(plan.cols) / kRowValues;
#pragma unroll
    for (int v = 0; v < 2; ++v) {
      const int vector = pairs[p] * 2 + v;
      Raw<kSource> raw = {}, gate = {};
      if (has[p]) raw = load_raw<kSource>(from, vector);
      if (plan.producer.gated && has[p]) gate = load_raw<kSource>(from, vector + plan.gate_vectors);
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        float& value = x[p * kRowValues + v * kVector + i];
        value = activated(kKind, any_nan_value<kSource>(raw, i));
        if (plan.producer.gated) value *= any_nan_value<kSource>(gate, i);
      }
    }
  }
  const RowTargets to = {plan.to + row * plan.to_pitch, plan.scales + row * plan.scale_pitch,
                         row == 0};
  sink_row<kSink, kPairs>(plan, to, pairs, has, x, most_of_warp);
}

}  // namespace octavo::cuda
