// What the tensor-core backward kernel needs of every row beforehand, and dQ afterwards.
#pragma once

#include "octavo/backend/cuda/attention/backward/backward_plan.h"
#include "octavo/backend/cuda/device/elements.cuh"

namespace octavo::cuda {

// Dense rows of an operand.
struct BackwardSource {
  const unsigned char* first = nullptr;
  std::int64_t batch_pitch = 0, head_pitch = 0, row_pitch = 0;

  [[nodiscard]] __device__ __forceinline__ const unsigned char* row(int batch, int head,
                                                                    int row) const {
    return first + batch * batch_pitch + head * head_pitch + row * row_pitch;
  }
};

struct BackwardRows {
  BackwardPlan plan;
  BackwardSource q, k, v, d_out, out;  // bf16; out may be f32
  DType out_dtype = DType::bf16;
  const float* log_sum_exp = nullptr;  // [batches, heads, queries]
  float* minus_lse = nullptr;
  float* delta = nullptr;
};

// The largest log-sum-exp that weights are computed from: beyond it f32 has too few fraction bits.
inline constexpr float kMostGivenLse = 1024.0F;

// Are all elements of eight bf16 finite?
__device__ __forceinline__ bool finite_bf16(uint4 eight) {
  bool finite = true;
  for (const std::uint32_t pair : {eight.x, eight.y, eight.z, eight.w})
    finite &= (pair & 0x7F80u) != 0x7F80u && (pair & 0x7F800000u) != 0x7F800000u;
  return finite;
}

// dO O of eight columns.
__device__ __forceinline__ float dot_of_eight(uint4 d, const BackwardRows& rows,
                                              const unsigned char* out, int lane) {
  const std::uint32_t pairs[4] = {d.x, d.y, d.z, d.w};
  float sum = 0.0F;
  if (rows.out_dtype == DType::f32) {
    const auto* from = reinterpret_cast<const float2*>(out) + lane * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sum += __uint_as_float(pairs[i] << 16) * from[i].x +
             __uint_as_float(pairs[i] & 0xFFFF0000u) * from[i].y;
    return sum;
  }
  const uint4 o = *reinterpret_cast<const uint4*>(out + lane * 16);
  const std::uint32_t theirs[4] = {o.x, o.y, o.z, o.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    sum += __uint_as_float(pairs[i] << 16) * __uint_as_float(theirs[i] << 16) +
           __uint_as_float(pairs[i] & 0xFFFF0000u) * __uint_as_float(theirs[i] & 0xFFFF0000u);
  return sum;
}

// Eight columns a lane. Blocks of 256 threads take rows of one head of Q (blockIdx.z is 0), padded
// to whole tiles, or of K and V.
template <int kDepth>
__global__ void __launch_bounds__(256)
    attention_backward_rows_kernel(const __grid_constant__ BackwardRows rows) {
  constexpr int kLanes = kDepth / 8, kAtOnce = 256 / kLanes, kTile = backward_queries(kDepth);
  const BackwardPlan& plan = rows.plan;
  const int lane = static_cast<int>(threadIdx.x) % kLanes,
            row = static_cast<int>(blockIdx.x) * kAtOnce + static_cast<int>(threadIdx.x) / kLanes;
  const bool of_keys = blockIdx.z != 0;
  const int heads = of_keys ? plan.kv_heads : plan.heads;
  if (static_cast<int>(blockIdx.y) >= heads * plan.batches) return;
  const int head = static_cast<int>(blockIdx.y) % heads,
            batch = static_cast<int>(blockIdx.y) / heads;
  const BackwardBand band = plan.band(batch);
  bool fine = true;
  if (of_keys) {
    if (row < band.keys)
      fine =
          finite_bf16(*reinterpret_cast<const uint4*>(rows.k.row(batch, head, row) + lane * 16)) &&
          finite_bf16(*reinterpret_cast<const uint4*>(rows.v.row(batch, head, row) + lane * 16));
  } else if (row < plan.tiles * kTile) {
    const BackwardBand::Span keys = band.keys_of(row, row + 1);
    float along = 0.0F, lse = HUGE_VALF;
    if (row < band.rows && keys.begin < keys.end) {
      const uint4 d = *reinterpret_cast<const uint4*>(rows.d_out.row(batch, head, row) + lane * 16),
                  q = *reinterpret_cast<const uint4*>(rows.q.row(batch, head, row) + lane * 16);
      const float given =
          rows.log_sum_exp[(std::int64_t{batch} * plan.heads + head) * plan.queries + row];
      along = dot_of_eight(d, rows, rows.out.row(batch, head, row), lane);
      fine = finite_bf16(d) && finite_bf16(q);
      if (given != -HUGE_VALF) {
        lse = given * 1.44269504F;
        fine &= fabsf(given) <= kMostGivenLse;
      }
    }
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2)
      along += __shfl_xor_sync(0xFFFFFFFFu, along, step, kLanes);
    fine &= isfinite(along);
    if (lane == 0) {
      const std::int64_t at = std::int64_t{blockIdx.y} * (plan.tiles * kTile) + row;
      rows.minus_lse[at] = -lse;
      rows.delta[at] = along;
      if (row % kTile == 0) plan.turns[std::int64_t{blockIdx.y} * plan.tiles + row / kTile] = 0;
    }
  }
  if (!fine) *plan.declined = 1;
}

// Sums of dQ, in the layout of accumulators, to rows. A block takes a warpgroup's part of a tile; a
// thread eight columns of four rows.
template <int kDepth>
__global__ void __launch_bounds__(128)
    attention_backward_d_q_kernel(const __grid_constant__ BackwardPlan plan) {
  if (*plan.declined != 0) return;
  const int tile = static_cast<int>(blockIdx.x) / kBackwardWarpgroups,
            part = static_cast<int>(blockIdx.x) % kBackwardWarpgroups,
            head = static_cast<int>(blockIdx.y) % plan.heads,
            batch = static_cast<int>(blockIdx.y) / plan.heads;
  const int first = tile * backward_queries(kDepth);
  const BackwardBand::Span keys = plan.band(batch).keys_of(first, first + backward_queries(kDepth));
  const bool any = keys.begin < keys.end;
  const float* const from =
      plan.d_q_sums +
      ((std::int64_t{blockIdx.y} * plan.tiles + tile) * kBackwardWarpgroups + part) * kBackwardPart;
  const int j = static_cast<int>(threadIdx.x) % 8, col = (kDepth == 64 ? 0 : part * 64) + 8 * j;
  unsigned char* const to = plan.d_q.head(batch, head);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int line = static_cast<int>(threadIdx.x) / 8 + 16 * i;  // 16 i: of warp i
    const int row = first + (kDepth == 64 ? part * 64 : 0) + line;
    if (row >= plan.queries) continue;
    float eight[8] = {};
    if (any)
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        const float2 two = *reinterpret_cast<const float2*>(
            from + (j * 128 + i * 32 + line % 8 * 4 + lane) * 4 + line / 8 % 2 * 2);
        eight[2 * lane] = two.x * plan.scale;
        eight[2 * lane + 1] = two.y * plan.scale;
      }
    plan.d_q.store_eight(to + row * plan.d_q.row_pitch, col, eight);
  }
}

// Adds to the gradient of each head's sink: a thread sums rows t, t + 256, ..., and one the
// threads, in order.
__global__ void __launch_bounds__(256)
    attention_backward_sinks_kernel(const __grid_constant__ BackwardPlan plan, AttentionSinks sinks,
                                    double* d_sinks, std::int64_t padded) {
  if (*plan.declined != 0) return;
  __shared__ double parts[256];
  const int head = static_cast<int>(blockIdx.x);
  const double sink = static_cast<double>(sinks.at(head)) * 1.4426950408889634;
  double sum = 0.0;
  for (int batch = 0; batch < plan.batches; ++batch) {
    const std::int64_t first = (std::int64_t{batch} * plan.heads + head) * padded;
    for (std::int64_t row = threadIdx.x; row < padded; row += 256)
      sum += exp2(sink + static_cast<double>(plan.minus_lse[first + row])) *
             static_cast<double>(plan.delta[first + row]);
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < 256; ++i) sum += parts[i];
  d_sinks[head] -= sum;
}

}  // namespace octavo::cuda
