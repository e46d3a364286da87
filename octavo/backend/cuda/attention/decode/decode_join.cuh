// The second kernel of decode attention, for heads that several thread blocks share.
#pragma once

#include <cmath>
#include <cstdint>

#include "octavo/backend/cuda/attention/decode/decode_math.cuh"
#include "octavo/backend/cuda/attention/decode/decode_rows.cuh"
#include "octavo/backend/cuda/attention/decode/decode_schedule.cuh"
#include "octavo/backend/cuda/hopper/pdl.cuh"

namespace octavo::cuda {

// Joins the partial results of heads that several thread blocks share, in the order of keys. One
// thread block for each (batch, KV head, group).
inline constexpr int kJoinThreads = 128;
template <int kKeysOfBlock, int kDims, int kTiles>
__global__ void __launch_bounds__(kJoinThreads)
    attention_decode_join_kernel(const __grid_constant__ DecodePlan plan) {
  constexpr int kRows = 8 * kTiles;
  __shared__ int scratch[kJoinThreads];
  DecodeShares<kKeysOfBlock, kJoinThreads> shares(plan, scratch);
  const int heads = static_cast<int>(plan.job.kv_heads) * plan.groups;
  const int batch = static_cast<int>(blockIdx.x) / heads,
            head = static_cast<int>(blockIdx.x) % heads,
            blocks = decode_blocks_of<kKeysOfBlock>(decode_span(plan.job, batch)),
            begin = shares.before(batch) + head * blocks, end = begin + blocks,
            first = shares.owner_of(begin), last = shares.owner_of(end - 1);
  pdl_wait();  // also where there is nothing to join: what comes next waits for this kernel alone
  if (first == last && shares.begin_of(first) <= begin && shares.begin_of(first + 1) >= end) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t step = decode_partial_floats(kRows, kDims);
  const auto partial_of = [&](int owner) {
    const int which = shares.begin_of(owner) >= begin ? 0 : 1;  // its first head, or its last
    return plan.partials +
           (static_cast<std::int64_t>(owner) * kDecodePartialsOfBlock + which) * step;
  };
  const int kv_head = head / plan.groups;
  for (int r = warp; r < kRows; r += kJoinThreads / 32) {
    const DecodeRow row = decode_row(plan, head, r);
    if (!row.exists) continue;
    DecodeState all;
    float sums[kDims / 32] = {};
    // A lane has the state of a partial result; their sums are added one after another.
    for (int some = first; some <= last; some += 32) {
      DecodeState mine;
      if (some + lane <= last)
        mine =
            *reinterpret_cast<const DecodeState*>(partial_of(some + lane) + r * kDecodeStateFloats);
      const float top = fmaxf(all.top, most_of_warp(mine.top)),
                  unit = fmaxf(all.unit, most_of_warp(mine.unit));
      all.sum =
          all.sum * step_down(all.top, top) + sum_of_warp(mine.sum * step_down(mine.top, top));
      all.largest = fmaxf(all.largest, most_of_warp(mine.largest));
      all.poisoned = fmaxf(all.poisoned, most_of_warp(mine.poisoned));
      const float before = step_down(all.unit, unit), now = step_down(mine.unit, unit);
      all.top = top;
      all.unit = unit;
#pragma unroll
      for (int i = 0; i < kDims / 32; ++i) sums[i] *= before;
#pragma unroll 4
      for (int owner = some; owner <= min(last, some + 31); ++owner) {
        const float factor = __shfl_sync(0xFFFFFFFFu, now, owner - some);
        const float* const of_row = partial_of(owner) + kRows * kDecodeStateFloats + r * kDims;
#pragma unroll
        for (int i = 0; i < kDims / 32; ++i) sums[i] += of_row[lane + 32 * i] * factor;
      }
    }
    const DecodeFinish finish = finish_decode_row(plan, batch, kv_head, row, all, lane);
#pragma unroll
    for (int i = 0; i < kDims / 32; ++i)
      if (lane + 32 * i < static_cast<int>(plan.job.out.first.cols()))
        store_decode_sum(plan, batch, kv_head, row, lane + 32 * i, sums[i], finish);
  }
}

}  // namespace octavo::cuda
