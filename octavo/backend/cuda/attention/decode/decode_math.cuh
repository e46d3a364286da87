// Arithmetic of the decode kernels: powers of two, sums over lanes, loads of shared memory that
// stay in place.
#pragma once

#include <cmath>
#include <cstdint>

#include "octavo/backend/cuda/hopper/shared_memory.cuh"

namespace octavo::cuda {

__device__ __forceinline__ float exp2_fast(float number) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(number));
  return result;
}
// Times a power of two that may be no f32 number itself.
__device__ __forceinline__ float scaled_by(float number, int exponent) {
  const int half = exponent / 2;
  return number * __int_as_float((127 + half) << 23) *
         __int_as_float((127 + exponent - half) << 23);
}
// Apart from the kernel's loop: few calls have a cap.
__device__ __noinline__ inline float soft_capped(float score, float cap) {
  return isfinite(score) ? cap * tanhf(score / cap) : NAN;
}
__device__ __forceinline__ float reciprocal(float number) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(number));
  return result;
}
// 2^difference; 0 where `from` is -inf, and 1 where both are.
__device__ __forceinline__ float step_down(float from, float to) {
  return to == -HUGE_VALF ? 1.0F : exp2_fast(from - to);
}
// The largest, or the sum, over the eight lanes that have other keys of the same rows.
__device__ __forceinline__ float most_of_keys(float number) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2)
    number = fmaxf(number, __shfl_xor_sync(0xFFFFFFFFu, number, step));
  return number;
}
__device__ __forceinline__ float sum_of_keys(float number) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) number += __shfl_xor_sync(0xFFFFFFFFu, number, step);
  return number;
}
__device__ __forceinline__ float most_of_warp(float number) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2)
    number = fmaxf(number, __shfl_xor_sync(0xFFFFFFFFu, number, step));
  return number;
}
__device__ __forceinline__ float sum_of_warp(float number) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) number += __shfl_xor_sync(0xFFFFFFFFu, number, step);
  return number;
}
__device__ __forceinline__ std::uint32_t transposed_8x8(std::uint32_t pair) {
  std::uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}
__device__ __forceinline__ uint4 load_16(SharedAddress from) {
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(from));
  return words;
}
__device__ __forceinline__ uint2 load_8(SharedAddress from) {
  uint2 words;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "r"(from));
  return words;
}

}  // namespace octavo::cuda
