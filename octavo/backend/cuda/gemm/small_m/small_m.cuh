// Small M kernel (GEMV, skinny GEMM): up to 56 rows of bf16 by weights that stay quantized until
// they are in registers, since reading weights is the bottleneck. A warp has 16 rows of weights and
// a part of K (split-K within a block); it decodes weights in registers, exactly, and multiplies
// them by all rows of A, eight at a time, with mma.sync. The parts of a block are added up in a
// fixed order. Warps with the same part of K and other weights read the same of A, which then hits
// L1: L2 would have to deliver more of A than of the weights.
//
// mma.sync gives a lane four positions of K out of sixteen. Which elements of K stand there is free
// as long as both operands agree: a lane takes 16 neighbours of K at a time, and pairs them so that
// their codes are cheap to decode. Two template parameters describe the weights.
//
// Codes:
//   Sixteen                   the codes of 16 neighbours of K, as they lie in memory
//   pair(sixteen, half, i)    pair i of the four in one half of them, as bf16
//   value_pair(eight, i)      the values of A at the same positions
//   kTwice                    double buffering: registers hold two chunks, and the next is loaded
//                             before this one is multiplied; else decoded codes make room for it
//
// Scales (small_m_scales.cuh), of a row in a chunk of K; an object is in registers of a lane:
//   of_row(plan, row)         address of the scales of a row
//   chunk_bytes(plan)         distance from there to those of the next chunk
//   load<kWhole>(...)         loads those of a chunk
//   factor(j, t)              multiplies the 16 codes j of a lane that is the t-th of its four
//   kRun, load_run, of_run(i) scales of kRun of K, which multiply the sums of a run; kRun 0: none
//   kAtEnd, at_end(plan, row) multiplies the whole sum
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/gemm/gemm_epilogue.cuh"
#include "octavo/backend/cuda/gemm/small_m/small_m_load.cuh"
#include "octavo/backend/cuda/gemm/small_m/small_m_plan.h"
#include "octavo/backend/cuda/gemm/small_m/small_m_scales.cuh"
#include "octavo/backend/cuda/hopper/mma_sync.cuh"
#include "octavo/backend/cuda/runtime/runtime.h"

namespace octavo::cuda {

// Warps per block: sixteen, or eight where each has many accumulators.
constexpr int small_m_warps(int eights) { return eights <= 2 ? 16 : 8; }

template <typename Codes, typename Scales, bool kWhole, int kEights, int kRowWarps>
__global__ void __launch_bounds__(small_m_warps(kEights) * 32, 1)
    small_m_kernel(const __grid_constant__ SmallMPlan plan) {
  constexpr int kWarps = small_m_warps(kEights), kParts = kWarps / kRowWarps,
                kBlockRows = kRowWarps * kSmallMWarpRows;
  __shared__ float sums_of[kParts][kBlockRows][kEights * 8 + 1];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int part = thread / 32 / kRowWarps, warp_row = thread / 32 % kRowWarps * kSmallMWarpRows;
  const int g = lane / 4, t = lane % 4;
  const int first_row = static_cast<int>(blockIdx.x) * kBlockRows;
  // Rows beyond the end, of weights and of A, are read from the last row and not stored.
  SmallMWeights<Codes, Scales> rows;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = min(first_row + warp_row + g + 8 * r, plan.weight_rows - 1);
    rows.codes[r] = plan.codes + row * plan.code_pitch + t * sizeof(typename Codes::Sixteen);
    rows.scales[r] = Scales::of_row(plan, row);
  }
  rows.advance(plan, part);
  const unsigned char* x[kEights];
#pragma unroll
  for (int n = 0; n < kEights; ++n) {
    x[n] = plan.x + min(n * 8 + g, plan.x_rows - 1) * plan.x_pitch + part * (kSmallMChunk * 2) +
           t * 32;
    asm volatile("" : "+l"(x[n]));  // as in SmallMWeights::advance
  }
  float sums[kEights][4] = {}, run[kEights][4] = {};
  float(&into)[kEights][4] = Scales::kRun > 0 ? run : sums;
  SmallMChunk<Codes, Scales> next;
  int depth = plan.depth - part * kSmallMChunk;  // of K left
  if (depth > 0) load_chunk<kWhole, true>(plan, rows, t, depth, next);
  for (; depth > 0; depth -= kParts * kSmallMChunk) {
    const SmallMChunk<Codes, Scales> now = next;
    const int depth_then = depth - kParts * kSmallMChunk;
    rows.advance(plan, kParts);
    // __syncwarp() keeps loads where they are: the compiler would move them down to their uses, and
    // no load would be in flight during the products.
    if (depth_then > 0) {
      load_chunk<kWhole, Codes::kTwice>(plan, rows, t, depth_then, next);
      if constexpr (Codes::kTwice) __syncwarp();
    }
#pragma unroll
    for (int j = 0; j < kSmallMSixteens; ++j) {
      const auto upper = now.scales[0].factor(j, t), lower = now.scales[1].factor(j, t);
      unsigned a[4][4];  // two mma.sync for each half of the sixteen
#pragma unroll
      for (int step = 0; step < 4; ++step)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int at = step % 2 * 2 + i;
          a[step][2 * i] = times(Codes::pair(now.codes[0][j], step / 2, at), upper);
          a[step][2 * i + 1] = times(Codes::pair(now.codes[1][j], step / 2, at), lower);
        }
      if (!Codes::kTwice && depth_then > 0) {
#pragma unroll
        for (int r = 0; r < 2; ++r)
          load_sixteen<kWhole>(rows.codes[r], j, t, depth_then, next.codes[r][j]);
        __syncwarp();
      }
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < kEights; ++n) {
          const uint4 values =
              kWhole || j * 64 + t * 16 < depth
                  ? __ldg(reinterpret_cast<const uint4*>(x[n] + j * 128 + half * 16))
                  : uint4{};
#pragma unroll
          for (int step = 0; step < 2; ++step)
            mma_m16n8k16(into[n], a[half * 2 + step], Codes::value_pair(values, 2 * step),
                         Codes::value_pair(values, 2 * step + 1));
        }
      if constexpr (Scales::kRun > 0) {
        if ((j + 1) * 64 % Scales::kRun != 0) continue;
        const int i = j * 64 / Scales::kRun;
#pragma unroll
        for (int n = 0; n < kEights; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {  // the first two are of the upper row
            sums[n][e] = __fmaf_rn(run[n][e], now.scales[e / 2].of_run(i), sums[n][e]);
            run[n][e] = 0.0F;
          }
        if (!Codes::kTwice && depth_then > 0) {
#pragma unroll
          for (int r = 0; r < 2; ++r)
            next.scales[r].template load_run<kWhole>(plan, rows.scales[r], i, depth_then);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kEights; ++n) x[n] += kParts * kSmallMChunk * 2;
  }
#pragma unroll
  for (int n = 0; n < kEights; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums_of[part][warp_row + g + (i < 2 ? 0 : 8)][n * 8 + 2 * t + i % 2] = sums[n][i];
  __syncthreads();
  const float scale =
      plan.tensor_scale != nullptr ? *plan.x_scale * *plan.tensor_scale : *plan.x_scale;
  for (int at = thread; at < kBlockRows * plan.x_rows; at += kWarps * 32) {
    const int row = at % kBlockRows, x_row = at / kBlockRows;
    if (first_row + row >= plan.weight_rows) continue;
    float sum = 0.0F;
#pragma unroll
    for (int p = 0; p < kParts; ++p) sum += sums_of[p][row][x_row];
    if constexpr (Scales::kAtEnd) sum *= Scales::at_end(plan, first_row + row);
    store_epilogue(plan.epilogue, x_row, first_row + row, sum * scale);
  }
}

template <typename Codes, typename Scales, bool kWhole, int kEights>
void launch_small_m_eights(const Exec& exec, const SmallMPlan& plan) {
  // Four warps of rows per block, rather than two, where that still makes blocks for most SMs.
  constexpr int kMany = 8192;
  const int row_warps = plan.weight_rows >= kMany ? 4 : 2;
  const auto kernel = row_warps == 4 ? small_m_kernel<Codes, Scales, kWhole, kEights, 4>
                                     : small_m_kernel<Codes, Scales, kWhole, kEights, 2>;
  kernel<<<blocks_for(plan.weight_rows, row_warps * kSmallMWarpRows), small_m_warps(kEights) * 32,
           0, stream_of(exec)>>>(plan);
  OCTAVO_CUDA_LAUNCHED("small_m_kernel");
}

// kMax: maximum number of rows of A.
template <typename Codes, typename Scales, bool kWhole, int kMax>
void launch_small_m(const Exec& exec, const SmallMPlan& plan) {
  const int eights = (plan.x_rows + 7) / 8;
  if (eights <= 1) return launch_small_m_eights<Codes, Scales, kWhole, 1>(exec, plan);
  if constexpr (kMax <= 16) {
    launch_small_m_eights<Codes, Scales, kWhole, 2>(exec, plan);
  } else {
    if (eights <= 2) return launch_small_m_eights<Codes, Scales, kWhole, 2>(exec, plan);
    if (eights <= 4) return launch_small_m_eights<Codes, Scales, kWhole, 4>(exec, plan);
    launch_small_m_eights<Codes, Scales, kWhole, kMax / 8>(exec, plan);
  }
}

template <typename Codes, typename Scales, int kMax>
void launch_small_m(const Exec& exec, const SmallMPlan& plan) {
  plan.whole ? launch_small_m<Codes, Scales, true, kMax>(exec, plan)
             : launch_small_m<Codes, Scales, false, kMax>(exec, plan);
}

}  // namespace octavo::cuda
