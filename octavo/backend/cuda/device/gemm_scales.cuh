// Scales of a tile of the result, from wherever they are into shared memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "octavo/backend/cuda/gemm_plan.h"

namespace octavo::cuda {

__device__ __forceinline__ float scale_of(const ScaleTable& table, int row, int block) {
  const unsigned char* from = table.data +
                              static_cast<std::int64_t>(row / table.rows_each) * table.row_pitch +
                              static_cast<std::int64_t>(block / table.blocks_each) * table.block_pitch;
  switch (table.dtype) {
    case DType::f32:
      return __ldg(reinterpret_cast<const float*>(from));
    case DType::bf16:
      return __uint_as_float(static_cast<std::uint32_t>(__ldg(reinterpret_cast<const std::uint16_t*>(from))) << 16);
    case DType::f16:
      return __half2float(__ushort_as_half(__ldg(reinterpret_cast<const std::uint16_t*>(from))));
    default: {  // e8m0: 2^(code - 127), 255 is NaN; 2^-127 is subnormal in f32
      const std::uint32_t code = __ldg(from);
      return __uint_as_float(code == 255 ? 0x7FC00000u : code == 0 ? 0x00400000u : code << 23);
    }
  }
}

// kCount of them by the lanes of a warp, `step` rows apart (0: one and the same).
template <int kCount>
struct ScaleStrip {
  static constexpr int kEach = (kCount + 31) / 32;
  float mine[kEach];

  __device__ __forceinline__ void load(const ScaleTable& table, int first_row, int rows, int block,
                                       int lane) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = first_row + lane + 32 * i;
      mine[i] = row < rows ? scale_of(table, row, block) : 0.0F;
    }
  }
  __device__ __forceinline__ void store(float* to, int lane) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (lane + 32 * i < kCount) to[lane + 32 * i] = mine[i];
  }
};

}  // namespace octavo::cuda
