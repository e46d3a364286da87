// Counts what a cast would saturate, flush or find NaN, from the values alone: one read,
// independent of the kernel that encodes.
#include <algorithm>

#include "octavo/backend/cuda/convert/count.cuh"
#include "octavo/backend/cuda/convert/vector_plan.h"
#include "octavo/backend/cuda/device/vectors.cuh"
#include "octavo/backend/cuda/runtime/kernel_table.h"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;  // vectors in flight
constexpr std::int64_t kMaxBlocks = 2048;

template <DType kSource>
__global__ void __launch_bounds__(kThreads)
    count_kernel(const unsigned char* from, VectorPlan plan,
                 const __grid_constant__ CountEdges edges, Counts* counts) {
  ThreadCounts met;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t row = blockIdx.y; row < plan.rows; row += gridDim.y) {
    const unsigned char* start = from + row * plan.from_pitch;
    for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
         at < plan.vectors; at += step * kUnroll) {
      Raw<kSource> raw[kUnroll] = {};  // zeros are not counted
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (at + u * step < plan.vectors) raw[u] = load_raw<kSource>(start, at + u * step);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) met.count_value(edges, f32_bits<kSource>(raw[u], i));
      }
    }
  }
  add_block_counts(counts, met);
}

template <DType kSource>
void launch(const Exec& exec, const Matrix& values, const VectorPlan& plan, const CountEdges& edges,
            Counts* counts) {
  const std::int64_t across =
      std::clamp<std::int64_t>(plan.vectors / (kThreads * kUnroll), 1, kMaxBlocks);
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(std::clamp<std::int64_t>(
                                                     plan.rows, 1, kMaxBlocks / across + 1)));
  count_kernel<kSource><<<grid, kThreads, 0, stream_of(exec)>>>(
      static_cast<const unsigned char*>(values.data), plan, edges, counts);
  OCTAVO_CUDA_LAUNCHED("count_kernel");
}

}  // namespace

bool count_vectorized(const Exec& exec, const Matrix& values, const Format& format,
                      const EncodePolicy& policy, Counts* counts) {
  VectorPlan plan;
  CountEdges edges{};
  if (!is_value(values.dtype) || values.dtype == DType::f64 ||
      !vector_plan(values, values, &plan) || !count_edges(format, policy, &edges))
    return false;
  switch (values.dtype) {
    case DType::f32:
      launch<DType::f32>(exec, values, plan, edges, counts);
      return true;
    case DType::bf16:
      launch<DType::bf16>(exec, values, plan, edges, counts);
      return true;
    default:
      launch<DType::f16>(exec, values, plan, edges, counts);
      return true;
  }
}

}  // namespace octavo::cuda
