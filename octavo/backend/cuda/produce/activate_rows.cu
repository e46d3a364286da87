// Activations along rows: a block has a whole row where the row has one scale, else a part of it.
#include <algorithm>
#include <cstdint>

#include "octavo/backend/cuda/produce/producer_math.cuh"
#include "octavo/backend/cuda/produce/row_output.cuh"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {

// Activation kernel: a row, or a part of one where that is enough, in the registers of a block.

template <DType kSource, ProducerKind kKind, RowOutput kOutput, int kPairs>
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
  store_row<kOutput, kPairs>(plan, to, pairs, has, x, most_of_warp);
}
namespace {

template <DType kSource, ProducerKind kKind, RowOutput kOutput>
void launch(const Exec& exec, const RowPlan& plan) {
  constexpr bool kWholeRows = kOutput == RowOutput::row;
  const std::int64_t pairs = plan.cols / kRowValues;
  const std::int64_t most = kWholeRows ? kRowThreads : 256;
  // Two pairs of vectors per thread for long rows: more loads in flight per thread.
  const std::int64_t wanted = kWholeRows && pairs >= 256 ? (pairs + 1) / 2 : pairs;
  const std::int64_t threads = std::clamp<std::int64_t>((wanted + 31) / 32 * 32, 32, most);
  dim3 grid(static_cast<unsigned>(plan.rows));
  auto kernel = activate_rows_kernel<kSource, kKind, kOutput, 1>;
  if constexpr (kWholeRows) {
    if (pairs > threads) kernel = activate_rows_kernel<kSource, kKind, kOutput, 2>;
  } else {
    grid.y = static_cast<unsigned>((pairs + threads - 1) / threads);
  }
  kernel<<<grid, static_cast<unsigned>(threads), 0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("activate_rows_kernel");
}

}  // namespace

void activate_rows(const Exec& exec, const RowPlan& plan, DType source, RowOutput output) {
  with_source_and_output(source, output, [&]<DType kSource, RowOutput kOutput>() {
    switch (plan.producer.kind) {
      case ProducerKind::gelu:
        return launch<kSource, ProducerKind::gelu, kOutput>(exec, plan);
      case ProducerKind::gelu_tanh:
        return launch<kSource, ProducerKind::gelu_tanh, kOutput>(exec, plan);
      case ProducerKind::silu:
        return launch<kSource, ProducerKind::silu, kOutput>(exec, plan);
      default:
        return launch<kSource, ProducerKind::relu, kOutput>(exec, plan);
    }
  });
}

}  // namespace octavo::cuda
