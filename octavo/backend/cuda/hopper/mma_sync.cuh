// mma.sync and ldmatrix: the matrix instruction of a single warp, 16 rows by 8 columns over 16 of
// K, of bf16, with f32 accumulators. Element i of the sums is in row lane / 4 + (i < 2 ? 0 : 8),
// column 2 (lane % 4) + i % 2.
#pragma once

#include <cstdint>

#include "octavo/backend/cuda/hopper/shared_memory.cuh"

namespace octavo::cuda {

__device__ __forceinline__ void mma_m16n8k16(float (&sums)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four matrices of 8 x 8 elements of 16 bits into registers in mma.sync's layout; lane i
// gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void ldmatrix_x4(SharedAddress from, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

}  // namespace octavo::cuda
