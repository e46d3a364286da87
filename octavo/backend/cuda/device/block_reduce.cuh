// Block reductions: the maximum over a thread block.
#pragma once

#include <cstdint>

namespace octavo::cuda {

// Every thread of the block calls this with the maximum of its warp and gets that of the block; the
// block is whole warps. `of_warp` is shared memory for 32 numbers.
__device__ __forceinline__ std::uint32_t amax_of_warps(std::uint32_t mine, std::uint32_t* of_warp) {
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  return __reduce_max_sync(0xFFFFFFFFu, lane < blockDim.x / 32 ? of_warp[lane] : 0u);
}
// The same from each thread's own number.
__device__ __forceinline__ std::uint32_t block_amax(std::uint32_t mine, std::uint32_t* of_warp) {
  return amax_of_warps(__reduce_max_sync(0xFFFFFFFFu, mine), of_warp);
}
// With shared memory of its own: at most one call per kernel.
__device__ __forceinline__ std::uint32_t block_amax(std::uint32_t mine) {
  __shared__ std::uint32_t of_warp[32];
  return block_amax(mine, of_warp);
}

}  // namespace octavo::cuda
