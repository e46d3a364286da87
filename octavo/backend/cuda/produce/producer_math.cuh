// f32 formulas of norms and activations: docs/numerics/producers.md derives their error bounds
// against the reference. Forms with cancellation are avoided.
#pragma once

#include <cstdint>

#include "octavo/backend/kernels.h"

namespace octavo::cuda {

// Error: 2 ulp, plus that of its argument. The quotients it is used in have 2 ulp as well where the
// divisor is below 2^126; beyond, they are zero, which is within the bound.
__device__ __forceinline__ float exponential(float x) { return exp2f(x * 1.4426950408889634F); }

__device__ __forceinline__ float activated(ProducerKind kind, float x) {
  switch (kind) {
    case ProducerKind::gelu:
      return x * (erfcf(-x * 0.70710678118654752F) * 0.5F);
    case ProducerKind::gelu_tanh: {
      const float z = 0.79788456080286536F * (x + 0.044715F * (x * x * x));
      return __fdividef(x, 1.0F + exponential(-2.0F * z));
    }
    case ProducerKind::silu:
      return __fdividef(x, 1.0F + exponential(-x));
    default:  // relu: NaN stays
      return x > 0.0F || x != x ? x : 0.0F;
  }
}

__device__ __forceinline__ double activated(ProducerKind kind, double x) {
  switch (kind) {
    case ProducerKind::gelu:
      return x * (erfc(-x * 0.70710678118654752440) * 0.5);
    case ProducerKind::gelu_tanh: {
      const double z = 0.79788456080286535588 * (x + 0.044715 * (x * x * x));
      return x / (1.0 + exp(-2.0 * z));
    }
    case ProducerKind::silu:
      return x / (1.0 + exp(-x));
    default:
      return x > 0.0 || x != x ? x : 0.0;
  }
}

// Block sum, the same bits for every thread: a tree over lanes, then over warps.
template <typename Real>
__device__ __forceinline__ Real block_sum(Real mine) {
  __shared__ Real of_warp[32];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xFFFFFFFFu, mine, step);
  __syncthreads();  // of the previous sum
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  mine = lane < blockDim.x / 32 ? of_warp[lane] : Real{0};
#pragma unroll
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xFFFFFFFFu, mine, step);
  return mine;
}

}  // namespace octavo::cuda
