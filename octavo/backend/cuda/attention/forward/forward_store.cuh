// Stores a warpgroup's tile of the output from accumulators: 16 bytes of a row by two lanes at a
// time where rows are aligned.
#pragma once

#include "octavo/backend/cuda/attention/forward/forward_plan.h"
#include "octavo/backend/cuda/device/elements.cuh"

namespace octavo::cuda {

__device__ __forceinline__ std::uint32_t half_pair(DType to, float low, float high) {
  std::uint32_t pair;
  if (to == DType::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// Elements 4 j + 2 r + e of `sums` are of row rows[r], column 8 j + 2 (lane % 4) + e. Rows that are
// not below `row_end` are not written.
template <int kCols, int kCount>
__device__ __forceinline__ void store_tile(const AttentionOperand& operand, int batch, int head,
                                           bool pairs, const int (&rows)[2], int row_end,
                                           const float (&sums)[kCount]) {
  static_assert(kCount >= kCols / 2);
  const Matrix& out = operand.first.values;
  auto* const base = static_cast<unsigned char*>(out.data) + batch * operand.batch_pitch +
                     head * operand.head_pitch;
  const int cols = static_cast<int>(out.cols), quad = static_cast<int>(threadIdx.x) % 4;
  const bool odd = (quad & 1) != 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool inside = rows[r] < row_end;
    unsigned char* const to = base + rows[r] * out.row_pitch;
    if (pairs && out.dtype != DType::f32) {
#pragma unroll
      for (int j = 0; j < kCols / 8; j += 2) {
        const std::uint32_t even_block =
                                half_pair(out.dtype, sums[4 * j + 2 * r], sums[4 * j + 2 * r + 1]),
                            odd_block = half_pair(out.dtype, sums[4 * j + 4 + 2 * r],
                                                  sums[4 * j + 4 + 2 * r + 1]);
        const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, odd ? even_block : odd_block, 1);
        const int col = 8 * j + (odd ? 8 + 2 * (quad - 1) : 2 * quad);
        const uint2 both = odd ? make_uint2(got, odd_block) : make_uint2(even_block, got);
        if (inside && col < cols) *reinterpret_cast<uint2*>(to + col * 2) = both;
      }
    } else if (pairs) {
#pragma unroll
      for (int j = 0; j < kCols / 8; ++j) {
        const int col = 8 * j + 2 * quad;
        if (inside && col < cols)
          *reinterpret_cast<float2*>(to + col * 4) =
              make_float2(sums[4 * j + 2 * r], sums[4 * j + 2 * r + 1]);
      }
    } else {
#pragma unroll
      for (int j = 0; j < kCols / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int col = 8 * j + 2 * quad + e;
          if (inside && col < cols) {
            const float value = sums[4 * j + 2 * r + e];
            if (out.dtype == DType::f32)
              store(to + col * 4, value);
            else
              store(to + col * 2, static_cast<std::uint16_t>(half_pair(out.dtype, value, 0.0F)));
          }
        }
    }
  }
}

}  // namespace octavo::cuda
