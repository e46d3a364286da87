// From sums in the registers of a warpgroup to the result in memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "octavo/backend/cuda/device/hopper.cuh"
#include "octavo/backend/cuda/device/produce.cuh"
#include "octavo/backend/cuda/device/wgmma.cuh"
#include "octavo/backend/cuda/gemm_plan.h"

namespace octavo::cuda {

// As it is, but not to be worked out before: what follows from it would be kept in registers all
// through a product.
__device__ __forceinline__ int not_before(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

inline constexpr int kStagedBytes = 64 * 64 * 4;  // of f32 sums, by one warpgroup at a time

// Where a warpgroup is: in the result, and among the threads of its block.
struct FinishAt {
  int row = 0, col = 0;  // of the plan, where the 64 rows and the columns of its sums begin
  int thread = 0;        // of the warpgroup
  SharedAddress staged = 0;
};

__device__ __forceinline__ std::uint32_t pair_of(DType dtype, float first, float second) {
  if (dtype == DType::bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// 16-bit results from registers. Four lanes have eight neighbours of a line of the result, two each,
// of two such blocks; after they have changed places a lane has four neighbours, and the four of them
// a sector of memory.
__device__ __forceinline__ void store_sector(const Matrix& out, int row, int col, int cols, int lane,
                                             std::uint32_t first, std::uint32_t second) {
  const bool odd = (lane & 1) != 0;
  const std::uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, odd ? first : second, 1);
  const uint2 four = odd ? make_uint2(other, second) : make_uint2(first, other);
  const int at = col + (odd ? 8 : 0) + (lane & 2) * 2;
  if (row >= out.rows || at >= cols) return;
  unsigned char* to =
      static_cast<unsigned char*>(out.data) + row * out.row_pitch + static_cast<std::int64_t>(at) * 2;
  if (at + 4 <= cols) {
    *reinterpret_cast<uint2*>(to) = four;
    return;
  }
  auto* one = reinterpret_cast<std::uint16_t*>(to);
  one[0] = static_cast<std::uint16_t>(four.x);
  if (at + 1 < cols) one[1] = static_cast<std::uint16_t>(four.x >> 16);
  if (at + 2 < cols) one[2] = static_cast<std::uint16_t>(four.y);
}

__device__ __forceinline__ std::uint32_t transposed(std::uint32_t of_block) {
  std::uint32_t made;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(made) : "r"(of_block));
  return made;
}

template <bool kTurned, int kCount>
__device__ __forceinline__ void store_pairs(const GemmPlan& plan, const FinishAt& at,
                                            const float (&sums)[kCount]) {
  const Matrix& out = plan.finish.out;
  const int thread = not_before(at.thread), lane = thread % 32, warp = thread / 32;
  const auto pair = [&](int j, int half) {
    return pair_of(out.dtype, sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
  };
  if constexpr (kTurned) {
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j)
      store_sector(out, at.col + 8 * j + lane / 4, at.row + warp * 16, plan.row_count, lane,
                   transposed(pair(j, 0)), transposed(pair(j, 1)));
  } else {
#pragma unroll
    for (int j = 0; j < kCount / 4; j += 2)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_sector(out, at.row + warp * 16 + half * 8 + lane / 4, at.col + 8 * j, plan.col_count,
                     lane, pair(j, half), pair(j + 1, half));
  }
}

__device__ __forceinline__ float value_at(const Matrix& from, std::int64_t row, std::int64_t col) {
  const unsigned char* at =
      static_cast<const unsigned char*>(from.data) + row * from.row_pitch + col * from.col_stride;
  switch (from.dtype) {
    case DType::f64:
      return static_cast<float>(*reinterpret_cast<const double*>(at));
    case DType::f32:
      return *reinterpret_cast<const float*>(at);
    case DType::f16:
      return __half2float(*reinterpret_cast<const __half*>(at));
    default:
      return __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(at));
  }
}

__device__ __forceinline__ void store_finished(const GemmFinish& finish, std::int64_t row,
                                               std::int64_t col, float sum) {
  if (finish.bias.data != nullptr) sum += value_at(finish.bias, 0, col);
  if (finish.activates) sum = activated(finish.activation, sum);
  if (finish.residual.data != nullptr) sum += value_at(finish.residual, row, col);
  unsigned char* to = static_cast<unsigned char*>(finish.out.data) + row * finish.out.row_pitch +
                      col * finish.out.col_stride;
  if (finish.out.dtype == DType::f32)
    *reinterpret_cast<float*>(to) = sum;
  else if (finish.out.dtype == DType::bf16)
    *reinterpret_cast<__nv_bfloat16*>(to) = __float2bfloat16_rn(sum);
  else
    *reinterpret_cast<__half*>(to) = __float2half_rn(sum);
}

// Any result: f32 sums pass through shared memory, 64 columns at a time, and come out in the order of
// the result's rows. Shared memory is swizzled so that neither side meets itself in a bank.
template <int kCount>
__device__ __forceinline__ void store_elements(const GemmPlan& plan, const FinishAt& at, int barrier,
                                               const float (&sums)[kCount]) {
  constexpr int kCols = kCount * 2, kSide = 64, kWidth = kCols < kSide ? kCols : kSide;
  auto* const staged = static_cast<float*>(
      __cvta_shared_to_generic(static_cast<unsigned>(not_before(static_cast<int>(at.staged)))));
  const int thread = not_before(at.thread), lane = thread % 32, warp = thread / 32;
  const int out_rows = plan.turned ? plan.col_count : plan.row_count,
            out_cols = plan.turned ? plan.row_count : plan.col_count;
#pragma unroll
  for (int half = 0; half < kCols / kWidth; ++half) {
    named_sync(barrier, 128);
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = warp * 16 + lane / 4 + (i < 2 ? 0 : 8), col = 8 * j + lane % 4 * 2 + i % 2;
        const int to = plan.turned ? col * kSide + (row ^ ((col / 2 & 3) * 8))
                                   : row * kSide + (col ^ ((row & 3) * 8));
        staged[to] = sums[(half * 8 + j) * 4 + i];
      }
    named_sync(barrier, 128);
    const int first_row = plan.turned ? at.col + half * kSide : at.row,
              first_col = plan.turned ? at.row : at.col + half * kSide;
    const int lines = plan.turned ? kWidth : kSide, width = plan.turned ? kSide : kWidth;
#pragma unroll 1
    for (int line = warp; line < lines; line += 4) {
      const int swizzle = plan.turned ? (line / 2 & 3) * 8 : (line & 3) * 8;
      const int row = first_row + line;
#pragma unroll 1
      for (int c = lane; c < width; c += 32) {
        const int col = first_col + c;
        if (row < out_rows && col < out_cols)
          store_finished(plan.finish, row, col, staged[line * kSide + (c ^ swizzle)]);
      }
    }
  }
  named_sync(barrier, 128);
}

// One warpgroup after the other, because there is one place to lay out in.
template <int kGroups, int kCount>
__device__ __forceinline__ void store_in_turn(const GemmPlan& plan, const FinishAt& at, int group,
                                              const float (&sums)[kCount]) {
#pragma unroll 1
  for (int turn = 0; turn < kGroups; ++turn) {
    named_sync(kGroups + 1, kGroups * 128);
    if (turn == group) store_elements(plan, at, 1 + group, sums);
  }
}

}  // namespace octavo::cuda
