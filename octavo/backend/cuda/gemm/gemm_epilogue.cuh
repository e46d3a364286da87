// Epilogue: from f32 accumulators in the registers of a consumer warpgroup to the result in global
// memory, by TMA store (16-bit results with no bias, activation or residual) or by element stores.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "octavo/backend/cuda/device/elements.cuh"
#include "octavo/backend/cuda/gemm/gemm_plan.h"
#include "octavo/backend/cuda/hopper/mbarrier.cuh"
#include "octavo/backend/cuda/hopper/shared_memory.cuh"
#include "octavo/backend/cuda/hopper/tma.cuh"
#include "octavo/backend/cuda/hopper/wgmma.cuh"
#include "octavo/backend/cuda/produce/producer_math.cuh"

namespace octavo::cuda {

// Keeps the compiler from computing what depends on `value` earlier, in the main loop, where it
// would occupy registers.
__device__ __forceinline__ int not_before(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// Shared memory that a warpgroup stages its result in: 64 rows of 16-bit elements, or f32 sums of
// half as many columns.
constexpr int staged_bytes(int cols) { return 64 * (cols < 64 ? 64 : cols) * 2; }

// The 64-row tile of a warpgroup: its place in the result, and the warpgroup's resources.
struct EpilogueTile {
  // In coordinates of the plan's result: first row and column of the tile; bounds of the product.
  int row = 0, col = 0;
  int row_begin = 0, col_begin = 0, row_end = 0, col_end = 0;
  int thread = 0;  // index in the warpgroup
  SharedAddress staged = 0;

  // Grouped GEMM: moves the tile to its group's place in the result. Returns whether all 64 rows
  // and `cols` columns are inside the group.
  __device__ __forceinline__ bool place_in_group(const PlanGroup& in, int cols) {
    row += in.row_shift;
    col += in.col_shift;
    row_begin = in.row_begin + in.row_shift;
    row_end = in.row_end + in.row_shift;
    col_begin = in.col_begin + in.col_shift;
    col_end = in.col_end + in.col_shift;
    return row >= row_begin && row + kMmaRows <= row_end && col >= col_begin &&
           col + cols <= col_end;
  }
};

template <bool kBf16>
__device__ __forceinline__ std::uint32_t pair_of(float first, float second) {
  if constexpr (kBf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Writes 16-bit results to shared memory in the layout of TMA stores (stmatrix): 128-byte lines,
// 128B swizzle; boxes of 64 columns of the result, one after the other.
template <bool kTransposed, bool kBf16, int kCount>
__device__ __forceinline__ void stage_for_tma_store(const EpilogueTile& at,
                                                    const float (&sums)[kCount]) {
  const int thread = not_before(at.thread), lane = thread % 32, warp = thread / 32;
  const int upper = lane / 8 % 2, right = lane / 16;  // 8 x 8 matrix that this lane addresses
  // 128B swizzle: 16-byte chunks are permuted by line % 8, which is lane % 8 for every line of a
  // lane. So the address changes by a constant from step to step.
  const int line = kTransposed ? 8 * right + lane % 8 : warp * 16 + upper * 8 + lane % 8,
            chunk = kTransposed ? warp * 2 + upper : right;
  const SharedAddress first = at.staged + line * kRowBytes + ((chunk ^ (lane % 8)) * 16);
#pragma unroll
  for (int j = 0; j < kCount / 4; j += 2) {
    std::uint32_t four[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      four[i] = pair_of<kBf16>(sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
    stmatrix_x4<kTransposed>(
        kTransposed ? first + j * 8 * kRowBytes : (first ^ (j % 8 * 16)) + j / 8 * 64 * kRowBytes,
        four);
  }
}

__device__ __forceinline__ void store_epilogue(const GemmEpilogue& epilogue, std::int64_t row,
                                               std::int64_t col, float sum) {
  if (epilogue.bias.data != nullptr) sum += load_float(epilogue.bias, 0, col);
  if (epilogue.activates) sum = activated(epilogue.activation, sum);
  if (epilogue.residual.data != nullptr) sum += load_float(epilogue.residual, row, col);
  store_float(epilogue.out, row, col, sum);
}

// Element stores, for any output type and epilogue. f32 sums pass through shared memory, a part of
// the columns at a time, and are stored along rows of the result. The staging buffer is swizzled so
// that neither writes nor reads have bank conflicts.
template <int kCount>
__device__ __forceinline__ void store_elements(const GemmPlan& plan, const EpilogueTile& at,
                                               int barrier, const float (&sums)[kCount]) {
  constexpr int kCols = kCount * 2, kSide = 64, kWidth = staged_bytes(kCols) / kSide / 4;
  auto* const staged = static_cast<float*>(
      __cvta_shared_to_generic(static_cast<unsigned>(not_before(static_cast<int>(at.staged)))));
  const int thread = not_before(at.thread), lane = thread % 32, warp = thread / 32;
  const int out_rows = plan.swap_ab ? at.col_end : at.row_end,
            out_cols = plan.swap_ab ? at.row_end : at.col_end;
  const int before_rows = plan.swap_ab ? at.col_begin : at.row_begin,
            before_cols = plan.swap_ab ? at.row_begin : at.col_begin;
  if (plan.uses_tma_store && at.thread == 0) tma_store_wait_read();  // of the tile before
#pragma unroll
  for (int half = 0; half < kCols / kWidth; ++half) {
    named_barrier_sync(barrier, 128);
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = warp * 16 + lane / 4 + (i < 2 ? 0 : 8), col = 8 * j + lane % 4 * 2 + i % 2;
        const int to = plan.swap_ab ? col * kSide + (row ^ ((col / 2 & 3) * 8))
                                    : row * kWidth + (col ^ ((row & 3) * 8));
        staged[to] = sums[(half * (kWidth / 8) + j) * 4 + i];
      }
    named_barrier_sync(barrier, 128);
    const int first_row = plan.swap_ab ? at.col + half * kWidth : at.row,
              first_col = plan.swap_ab ? at.row : at.col + half * kWidth;
    const int lines = plan.swap_ab ? kWidth : kSide, width = plan.swap_ab ? kSide : kWidth;
#pragma unroll 1
    for (int line = warp; line < lines; line += 4) {
      const int swizzle = plan.swap_ab ? (line / 2 & 3) * 8 : (line & 3) * 8;
      const int row = first_row + line;
#pragma unroll 1
      for (int c = lane; c < width; c += 32) {
        const int col = first_col + c;
        if (row >= before_rows && row < out_rows && col >= before_cols && col < out_cols)
          store_epilogue(plan.epilogue, row, col, staged[line * width + (c ^ swizzle)]);
      }
    }
  }
  named_barrier_sync(barrier, 128);
}

// TMA store of 16-bit results with a plain epilogue, asynchronous to the next tile's main loop. The
// warpgroup has kBuffers staging buffers, uses them in rotation, and uses each once per tile.
template <int kBuffers, int kCount>
__device__ __forceinline__ void tma_store_tile(const GemmPlan& plan, const EpilogueTile& at,
                                               int barrier, const float (&sums)[kCount]) {
  constexpr int kBoxes = (kCount * 2 + 63) / 64;
  if (at.thread == 0) tma_store_wait_read<kBuffers - 1>();  // the earlier store from this buffer
  named_barrier_sync(barrier, 128);
  if (plan.epilogue.out.dtype == DType::bf16)
    plan.swap_ab ? stage_for_tma_store<true, true>(at, sums)
                 : stage_for_tma_store<false, true>(at, sums);
  else
    plan.swap_ab ? stage_for_tma_store<true, false>(at, sums)
                 : stage_for_tma_store<false, false>(at, sums);
  fence_proxy_async();
  named_barrier_sync(barrier, 128);
  if (at.thread != 0) return;
  if (plan.swap_ab) {
    tma_store_2d(plan.out_tensor_map, at.row, at.col, at.staged);
  } else {
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      tma_store_2d(plan.out_tensor_map, at.col + 64 * box, at.row,
                   at.staged + box * 64 * kRowBytes);
  }
  tma_store_commit();
}

}  // namespace octavo::cuda
